package component

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// outputReader parses the output of a component, line by line and in both klog formats, and keeps possible dumps of
// the effective configuration, errors of strict decoding, and the error that ended the process. maxEntry and maxDumps
// limit its memory.
type outputReader struct {
	dumps []string // logged values that holdsDump accepted, at most maxDumps
	// truncated: a line or value exceeded the limit, so dumps may be incomplete.
	truncated   bool
	strictError string // error of strict decoding
	failure     string // error of the component that ended the process
	panic       string
	overrun     string   // first line that matched overrunMarks
	fileFlags   []string // flags that should be set via the configuration file, according to the component

	overrunMarks []string // messages that are logged only after the end of the dry run
	// holdsDump reports whether a value may be the effective configuration; nil: keep no values.
	holdsDump func(value string) bool
	onOverrun func(line string)

	last    string // last line, without klog header
	partial []byte
	tooLong bool
	entry   *entry // an unfinished multi-line value
}

// entry is a log entry with a multi-line value: `"message" key=<`, lines that start with a tab, ` >`. More keys and
// values may follow.
type entry struct {
	message, key string
	value        bytes.Buffer
}

const (
	// maxEntry limits a line or a value, in bytes. The dump of a 1 MiB payload has a few MiB.
	maxEntry = 16 << 20
	// maxDumps limits the kept values. With more than one, no dump is recognized.
	maxDumps = 4
)

// fileFlag is the warning of a kubelet about a flag that is nothing but a field of its configuration.
var fileFlag = regexp.MustCompile(`^Flag --(\S+) has been deprecated, This parameter should be set via the config file`)

var klogHeader = regexp.MustCompile(`^[IWEF][0-9]{4} [0-9:.]{15} +[0-9]+ [^ \]]+:[0-9]+\] `)

// Write implements io.Writer; it never fails.
func (t *outputReader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}
		if len(t.partial)+len(piece) <= maxEntry {
			t.partial = append(t.partial, piece...)
		} else {
			t.tooLong, t.truncated = true, true
		}
		if i < 0 {
			break
		}
		t.flush()
		p = p[i+1:]
	}
	return n, nil
}

// flush processes the pending text as a line, even without a newline.
func (t *outputReader) flush() {
	if len(t.partial) == 0 && !t.tooLong {
		return
	}
	line := string(t.partial)
	t.partial, t.tooLong = t.partial[:0], false
	if cap(t.partial) > 64<<10 {
		t.partial = nil
	}
	t.line(strings.TrimSuffix(line, "\r"))
}

func (t *outputReader) line(line string) {
	if t.entry != nil {
		if value, ok := strings.CutPrefix(line, "\t"); ok {
			if t.entry.value.Len()+len(value) < maxEntry {
				t.entry.value.WriteString(value + "\n")
			} else {
				t.truncated = true
			}
			return
		}
		closed := t.entry
		t.entry = nil
		t.add(closed.message, closed.key, strings.TrimSuffix(closed.value.String(), "\n"))
		if more, ok := strings.CutPrefix(line, " >"); ok {
			t.pairs(closed.message, more)
			return
		}
	}
	if strings.TrimSpace(line) == "" {
		return
	}
	if strings.HasPrefix(line, "{") && t.jsonLine(line) {
		return
	}
	header := klogHeader.FindString(line)
	rest := line[len(header):]
	t.last = rest
	switch {
	case header != "":
		t.structured(rest)
	case strings.HasPrefix(line, "Flag --"):
		if found := fileFlag.FindStringSubmatch(line); found != nil {
			t.fileFlags = append(t.fileFlags, found[1])
		}
	case strings.HasPrefix(line, "Error: "):
		t.failure = strings.TrimPrefix(line, "Error: ")
	case t.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.panic = line
	}
	t.checkOverrun(rest)
}

// structured parses an entry of the text format: `"message" key="value" key=value`.
func (t *outputReader) structured(rest string) {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return // not structured: `FLAG: --x="y"`
	}
	message, _ := strconv.Unquote(quoted)
	t.add(message, "", "")
	t.pairs(message, rest[len(quoted):])
}

// pairs parses the keys and values of an entry. A multi-line value continues on the following lines.
func (t *outputReader) pairs(message, rest string) {
	for {
		key, after, ok := strings.Cut(strings.TrimLeft(rest, " "), "=")
		if !ok {
			return
		}
		if after == "<" {
			t.entry = &entry{message: message, key: key}
			return
		}
		var value string
		value, rest = firstValue(after)
		t.add(message, key, value)
	}
}

// firstValue splits the text after `key=` into the first value (a quoted string, JSON, or a word) and the rest.
func firstValue(text string) (value, rest string) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		value, _ = strconv.Unquote(quoted)
		return value, text[len(quoted):]
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var raw json.RawMessage
		dec := json.NewDecoder(strings.NewReader(text))
		if err := dec.Decode(&raw); err == nil {
			return string(raw), text[dec.InputOffset():]
		}
	}
	value, rest, _ = strings.Cut(text, " ")
	return value, rest
}

// jsonLine parses an entry of the JSON format. It reports whether the line is one.
func (t *outputReader) jsonLine(line string) bool {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return false
	}
	text := func(raw json.RawMessage) string {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return string(raw)
		}
		return s
	}
	message := text(fields["msg"])
	t.last = message
	t.add(message, "", "")
	for key, raw := range fields {
		t.add(message, key, text(raw))
	}
	t.checkOverrun(message)
	return true
}

// add handles one key and value of an entry; both are empty for the entry itself.
func (t *outputReader) add(message, key, value string) {
	if len(t.dumps) < maxDumps && t.holdsDump != nil && t.holdsDump(value) {
		t.dumps = append(t.dumps, value)
	}
	switch {
	case key == "err" && strings.HasPrefix(message, "Using lenient decoding as strict decoding failed"):
		t.strictError = value
	case key == "err" && message == "command failed":
		t.failure = value
	}
}

func (t *outputReader) checkOverrun(line string) {
	if t.overrun != "" {
		return
	}
	for _, mark := range t.overrunMarks {
		if strings.Contains(line, mark) {
			t.overrun = clip(line, 200)
			t.onOverrun(t.overrun)
			return
		}
	}
}

// failureText returns the error that ended the process, or its last line.
func (t *outputReader) failureText() string {
	switch {
	case t.failure != "":
		return t.failure
	case t.panic != "":
		return t.panic
	default:
		return t.last
	}
}

// clip truncates text to n bytes and keeps it valid UTF-8.
func clip(text string, n int) string { return printable.Truncate(strings.ToValidUTF8(text, "?"), n) }
