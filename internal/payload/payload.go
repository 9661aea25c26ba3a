// Package payload turns a ConfigMap into the configuration it carries: which key, which bytes, their digest and their
// decoded fields, in the upstream form whether it came in that one or in evenkeel's grouped one. It refuses what no
// kubelet should ever be shown. It is pure: it must not know files, processes or the API server, and it leaves to the
// kubelet's own dry run what only the kubelet can judge (unknown upstream fields, values out of range, feature gates).
package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys that a ConfigMap may hold, exactly one of them.
const (
	KeyKubelet       = "kubelet"        // a whole KubeletConfiguration
	KeyKubeletDropin = "kubelet-dropin" // a partial one, laid over the local configuration
)

// MaxSize is the most bytes that a payload may have: a ConfigMap cannot hold more.
const MaxSize = 1 << 20

// mostIndented is the largest text that is indented, in bytes: with maxDepth it grows to 6 MiB at most.
const mostIndented = 64 << 10

// Payload is one configuration as it was assigned, byte for byte.
type Payload struct {
	Key      string         // KeyKubelet or KeyKubeletDropin
	Data     []byte         // the value's bytes, exactly
	SHA256   string         // hex of sha256(Key + "\n" + Data)
	Trial    Trial          // what the payload itself asks for; zero for an upstream KubeletConfiguration
	Upstream []byte         // what the kubelet is given: Data, or what the grouped form means
	Fields   map[string]any // Upstream decoded, for guards; numbers are int64 or float64
}

// Trial is what a payload asks of its own trial. A nil or false field leaves it to the agent's flags.
type Trial struct {
	Duration           *time.Duration
	CrashLoopThreshold *int
	AllowPodLoss       bool
}

// Problem says in one CamelCase word why a payload was refused.
type Problem string

// The problems that FromConfigMap and Decode report.
const (
	ProblemKeys           Problem = "Keys"              // not exactly one known key, or anything besides it
	ProblemEmpty          Problem = "Empty"             // nothing but white space and comments
	ProblemTooLarge       Problem = "TooLarge"          // over MaxSize, or it might be with its YAML aliases written out
	ProblemTooDeep        Problem = "TooDeep"           // mappings and lists nested too deep
	ProblemSyntax         Problem = "Syntax"            // neither JSON nor YAML, or not a mapping
	ProblemDocuments      Problem = "Documents"         // more than one YAML document
	ProblemDuplicate      Problem = "DuplicateKey"      // a key twice in one mapping
	ProblemKind           Problem = "Kind"              // wrong kind or apiVersion
	ProblemGroup          Problem = "Group"             // grouped form: a group or field that there is not, or not there
	ProblemTrial          Problem = "Trial"             // grouped form: a trial that cannot be
	ProblemRelativePath   Problem = "RelativePath"      // a path that would be resolved against the rendered file
	ProblemHealthDisabled Problem = "HealthEndpointOff" // a kubelet whose health nobody could see
)

// Error is a refused payload.
type Error struct {
	Problem Problem
	Object  string // "namespace/name" of the ConfigMap, empty when bytes alone were decoded
	Key     string // the data key that is at fault, empty when it is the ConfigMap as a whole
	Words   string // what is wrong, in plain words
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Object != "" {
		b.WriteString("ConfigMap " + e.Object + ": ")
	}
	if e.Key != "" {
		b.WriteString("key \"" + e.Key + "\": ")
	}
	b.WriteString(e.Words)
	return b.String()
}

// FromConfigMap returns the payload of a ConfigMap. The error, if any, is an *Error that names the ConfigMap and key.
func FromConfigMap(cm *corev1.ConfigMap) (Payload, error) {
	object := cm.Namespace + "/" + cm.Name
	refuse := func(words string) (Payload, error) {
		return Payload{}, &Error{Problem: ProblemKeys, Object: object, Words: words}
	}
	if len(cm.BinaryData) > 0 {
		return refuse("binaryData is not allowed (" + quoteAll(keys(cm.BinaryData)) + ")")
	}
	var found, unknown []string
	for _, key := range keys(cm.Data) {
		switch key {
		case KeyKubelet, KeyKubeletDropin:
			found = append(found, key)
		default:
			unknown = append(unknown, key)
		}
	}
	switch {
	case len(unknown) > 0:
		return refuse("unknown data keys " + quoteAll(unknown) + "; exactly one of \"kubelet\" and \"kubelet-dropin\" is allowed")
	case len(found) == 0:
		return refuse("it has neither the data key \"kubelet\" nor \"kubelet-dropin\"")
	case len(found) > 1:
		return refuse("it has both data keys \"kubelet\" and \"kubelet-dropin\"; exactly one is allowed")
	}
	p, err := Decode(found[0], []byte(cm.Data[found[0]]))
	if refused := (*Error)(nil); errors.As(err, &refused) {
		refused.Object = object
	}
	return p, err
}

// Decode returns the payload that data is under key. The error, if any, is an *Error that names the key.
func Decode(key string, data []byte) (Payload, error) {
	p := Payload{Key: key, Data: data, SHA256: Digest(key, data), Upstream: data}
	if refused := p.decode(); refused != nil {
		refused.Key = key
		return Payload{}, refused
	}
	return p, nil
}

func (p *Payload) decode() *Error {
	if p.Key != KeyKubelet && p.Key != KeyKubeletDropin {
		return &Error{Problem: ProblemKeys, Words: "unknown key"}
	}
	if len(p.Data) > MaxSize {
		return &Error{Problem: ProblemTooLarge, Words: "larger than 1 MiB"}
	}
	fields, refused := decodeFields(p.Data)
	if refused != nil {
		return refused
	}
	if words := checkKind(fields); words != "" {
		return &Error{Problem: ProblemKind, Words: words}
	}
	called := func(path string) string { return path }
	if fields[keyAPIVersion] == GroupedAPIVersion {
		called = GroupedPath
		if fields, p.Trial, refused = flatten(fields); refused != nil {
			return refused
		}
		text, err := json.Marshal(fields)
		if err != nil {
			return notRead(err)
		}
		if len(text) > MaxSize {
			return &Error{Problem: ProblemTooLarge, Words: "larger than 1 MiB in the upstream form"}
		}
		// People read it, too. But what is large and nested would grow many times over.
		if indented := (bytes.Buffer{}); len(text) <= mostIndented && json.Indent(&indented, text, "", "  ") == nil {
			text = indented.Bytes()
		}
		p.Upstream = text
	}
	p.Fields = plain(fields).(map[string]any)
	return guard(p.Fields, called)
}

// Digest returns the hex sha256 that identifies data under key, valid or not.
func Digest(key string, data []byte) string {
	h := sha256.New()
	h.Write([]byte(key + "\n"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// quoteAll lists at most five names, so that a hostile ConfigMap cannot fill a status.
func quoteAll(names []string) string {
	const most = 5
	more := ""
	if len(names) > most {
		names, more = names[:most], ", ..."
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ") + more
}
