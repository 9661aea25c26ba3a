package payload

import (
	"encoding/json"
	"strconv"
	"time"
)

// The bounds of what a payload may ask of its own trial.
const (
	maxTrialDuration      = 168 * time.Hour
	maxCrashLoopThreshold = 10
)

// trial reads the trial that a grouped configuration asks for.
func (f *faults) trial(value any) Trial {
	var t Trial
	asked, ok := value.(map[string]any)
	if !ok {
		f.add(ProblemTrial, keyTrial, "must be a mapping of fields, not "+shown(value))
		return t
	}
	known := []string{"allowPodLoss", "configTrialDuration", "crashLoopThreshold"}
	for _, key := range keys(asked) {
		path, value := join(keyTrial, pathPart(key)), asked[key]
		refuse := func(must string) { f.add(ProblemTrial, path, must+", not "+shown(value)) }
		switch key {
		case "allowPodLoss":
			if t.AllowPodLoss, ok = value.(bool); !ok {
				refuse("must be true or false")
			}
		case "configTrialDuration":
			text, _ := value.(string)
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 || d > maxTrialDuration {
				refuse(`must be a duration over 0 and up to 168h, such as "30m"`)
			}
			t.Duration = &d
		case "crashLoopThreshold":
			number, _ := value.(json.Number)
			n, err := strconv.Atoi(string(number))
			if err != nil || n < 0 || n > maxCrashLoopThreshold {
				refuse("must be a whole number from 0 to 10")
			}
			t.CrashLoopThreshold = &n
		default:
			f.add(ProblemTrial, path, unknown(key, known, keyTrial))
		}
	}
	return t
}
