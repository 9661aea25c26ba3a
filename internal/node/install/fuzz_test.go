// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// A unit file has only the settings that its text has, each on one line; a
// command is refused or passed on as written.
func FuzzUnitFile(f *testing.F) {
	for _, text := range []string{
		"# a\n[Service]\nEnvironment=\"A=--b=c\"\nEnvironmentFile=-/d\nExecStart=\nExecStart=/e $A $B\n",
		"[Service]\nExecStart=/a $B \\\n  # a comment\n  --v=2\n",
		"[Service]\nExecStart=-/a b\n",
		"\ufeff[Service]\r\nExecStart=@/a b\r\n",
		"[Service]\nExecStart=\"+/a\"\n",
		"[Service]\nExecStart=/a ; /b",
		"ExecStart=/a",
		"[\n]=\\\n",
		"[Service]\nExecStart=/a \\\n\\\n\\",
	} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		files := []file{{"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", data}}
		for _, s := range files[0].settings() {
			assert.That(t, !strings.ContainsAny(s.key+s.value+s.section, "\n") && s.section != "" && s.key == strings.TrimSpace(s.key) && s.value == strings.TrimSpace(s.value), "%q has the setting %+v", data, s)
		}

		overriders(files, "05-a.conf")
		c, err := execStartOf(files)
		if err != nil {
			return
		}

		assert.That(t, c.text != "" && !strings.ContainsAny(c.prefix, "@|") && strings.Trim(c.prefix, prefixes) == "", "%q has the command %+v", data, c)
		again, err := execStartOf([]file{{files[0].path, []byte("[Service]\nExecStart=\nExecStart=" + c.prefix + c.text + "\n")}})
		odd := len(c.text) - len(strings.TrimRight(c.text, `\`))
		assert.That(t, odd%2 != 0 || err == nil && again == c, "%q has the command %+v, which is read again as %+v, %v", data, c, again, err)
	})
}

// An environment file gives only valid names, ends, and a value that is written
// with quotes is read unchanged.
func FuzzEnvironment(f *testing.F) {
	for _, text := range []string{"A=b\n", "A='b c'\"d\\\"e\" f \nB=\\\nc", "# x\n;y\n=z\n A = b ", "A=\"$B\\$C\"", "A='x", "1A=b\nA.B=c", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\""} {
		f.Add(text, "a 'b' \"c\" $d \\e")
	}

	f.Fuzz(func(t *testing.T, data, value string) {
		env := map[string]string{}
		parseEnvironment(data, env)
		size := 0
		for name, v := range env {
			if size += len(name) + len(v); !isVariable(name) {
				t.Errorf("%q sets %q", data, name)
			}
		}

		assert.That(t, size <= len(data), "%q sets %d bytes: %q", data, size, env)
		argv := expand([]string{"/bin/a", data, "$A", "${A}x", "$$A"}, env)
		assert.That(t, argv[0] == "/bin/a" && len(argv) >= 3 && argv[len(argv)-1] == "$A" && argv[len(argv)-2] == env["A"]+"x", "with %q the command is %q", env, argv)
		if strings.ContainsAny(value, "\x00\n") {
			return
		}

		again := map[string]string{}
		parseEnvironment("X=\""+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)+"\"\n", again)
		assert.That(t, again["X"] == value, "%q was read as %q", value, again["X"])
	})
}

// systemd reads a quoted word as that word: the reader of words, which follows
// systemd's rules, says so.
func FuzzQuote(f *testing.F) {
	for _, word := range []string{"", "a", "a b", `"`, `\`, "$A", "${A}", "%n", ";", "'", "a'b\"c\\d $$ %%"} {
		f.Add(word)
	}

	f.Fuzz(func(t *testing.T, word string) {
		quoted, err := quote(word, true)
		if err != nil {
			assert.That(t, strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }), "%q: %v", word, err)
			return
		}

		words := splitWords(quoted)
		assert.Must(t, len(words) == 1, "%q became %q, which is %d words: %q", word, quoted, len(words), words)
		assert.Equal(t, strings.ReplaceAll(expandWord(words[0], map[string]string{"A": "x"}), "%%", "%"), word, "became", quoted, "which is")
	})
}

// A record of a change is read as it was written, or refused with its path.
func FuzzRecord(f *testing.F) {
	content := "[Service]\n"
	full, err := json.Marshal(change{Version: recordVersion, Operation: installing, Unit: "kubelet.service", DropIn: "/etc/a", To: &content, Agent: []string{"/a"}, Reason: "x"})
	assert.NoError(f, err)
	for _, text := range []string{string(full), "", "null", "{}", `{"version":99}`, string(full) + "x", `{"version":1,"target":{}}`} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := crashfs.New()
		s := &Host{FS: fsys, StateDir: "/state"}
		assert.NoError(t, fsys.Mkdir("/state", 0o700))
		assert.NoError(t, atomicfile.Write(fsys, s.record("kubelet.service"), data, 0o600))
		c, err := s.load("kubelet.service")
		if err != nil {
			assert.That(t, c == nil && strings.Contains(err.Error(), s.record("kubelet.service")), "%q is %+v, %v", data, c, err)
			return
		}

		c.Unit = "kubelet.service"
		if err := s.save(c); err != nil {
			return // a time that JSON does not have
		}

		again, err := s.load("kubelet.service")
		assert.Must(t, err == nil && again != nil && again.Begun.Equal(c.Begun), "%q is %+v, and again %+v, %v", data, c, again, err)
		again.Begun = c.Begun
		a, b := mustJSON(t, c), mustJSON(t, again)
		assert.That(t, a == b, "%q is %s, and again %s", data, a, b)
	})
}

func mustJSON(t *testing.T, v any) string {
	text := assert.Value(json.Marshal(v))(t)
	return string(text)
}
