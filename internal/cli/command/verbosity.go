// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"io"
	"regexp"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// The levels of kubectl's -v.
const (
	levelShown  = 1 // below, nothing of the client library's log is shown: errors that matter are returned
	levelBodies = 8
)

// AddVerbosity adds kubectl's -v to flags: the client library's log goes to
// ErrOut, without credentials. The log is one for the process.
func (e *Env) AddVerbosity(flags *pflag.FlagSet) {
	var library flag.FlagSet
	klog.InitFlags(&library)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL",
		"one_output": "true", "v": "0"} {
		if err := library.Set(name, value); err != nil {
			panic(err) // klog has these flags
		}
	}

	klog.SetOutput(maskedLog{e.ErrOut})
	ctrllog.SetLogger(klog.Background()) // without one, controller-runtime complains on stderr
	v := pflag.PFlagFromGoFlag(library.Lookup("v"))
	v.Usage = "log level, as in kubectl: 6 shows the requests to the API server, 8 also their content, without credentials"
	flags.AddFlag(v)
}

// Values of a kubelet configuration in objects, as JSON, and as YAML in a
// string. What is secret there has no name that payload.MaskText knows.
var (
	flowHeaders  = regexp.MustCompile(`(staticPodURLHeader\\*["']?\s*:\s*)\{[^}]*\}?`)
	blockHeaders = regexp.MustCompile(`(staticPodURLHeader\\*["']?:[ \t]*)(?:(?:\\+n|\n)[ \t-]+(?:[^\\\n]|\\+[^n\\])*)+`)
	podURL       = regexp.MustCompile(`(staticPodURL\\*["']?\s*:\s*\\*["']?[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s,?#"'\\]+)[/?#][^\s,"'\\]*`)
)

// maskLog returns a record of the log without credentials.
func maskLog(record string) string {
	record = flowHeaders.ReplaceAllString(record, "${1}masked")
	record = blockHeaders.ReplaceAllString(record, "${1}masked")
	return payload.MaskText(podURL.ReplaceAllString(record, "${1}/masked"))
}

// maskedLog writes records of the log without credentials. klog calls Write
// once for each record.
type maskedLog struct{ to io.Writer }

func (m maskedLog) Write(record []byte) (int, error) {
	if !klog.V(levelShown).Enabled() {
		return len(record), nil
	}
	if _, err := io.WriteString(m.to, maskLog(string(record))); err != nil {
		return 0, err
	}

	return len(record), nil
}
