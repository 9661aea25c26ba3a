package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files into a new directory and returns its path.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAWholeCandidateIsOneFile(t *testing.T) {
	k := &Kubelet{Config: "/a", ConfigDir: "/nowhere"}
	files, err := k.Files(Candidate{Data: []byte("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"kubelet": []byte("x")}, files); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestADropInIsRenderedAfterTheNodesOwn(t *testing.T) {
	dir := tree(t, map[string]string{
		"10-cgroup.conf": "a", "sub/00.conf": "b", "sub/deep/x.conf": "c", "sub.conf": "d", "zz.conf/y.conf": "e",
		"ZZ.conf": "f", ".conf": "g", "ä b.conf": "h", strings.Repeat("l", 200) + ".conf": "i", "README": "no", "x.conf.bak": "no",
	})
	if err := os.Symlink("README", filepath.Join(dir, "link.conf")); err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{ConfigDir: dir}
	files, err := k.Files(Candidate{Data: []byte("ours"), Dropin: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		got = append(got, name+": "+string(files[name]))
	}
	want := []string{
		"kubelet.conf.d/000-.conf: g",
		"kubelet.conf.d/001-10-cgroup.conf: a",
		"kubelet.conf.d/002-ZZ.conf: f",
		"kubelet.conf.d/003-link.conf: no",
		"kubelet.conf.d/004-" + strings.Repeat("l", 100) + ".conf: i",
		"kubelet.conf.d/005-sub-00.conf: b",
		"kubelet.conf.d/006-sub-deep-x.conf: c",
		"kubelet.conf.d/007-sub.conf: d",
		"kubelet.conf.d/008-zz.conf-y.conf: e",
		"kubelet.conf.d/009-__b.conf: h",
		"kubelet.conf.d/evenkeel.conf: ours",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	safe := regexp.MustCompile(`^kubelet\.conf\.d/[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	for name := range files {
		if !safe.MatchString(name) {
			t.Errorf("the name %s is not safe", name)
		}
	}
}

func TestADropInIsTheOnlyOneIfTheNodeHasNone(t *testing.T) {
	dir := tree(t, map[string]string{"10.conf": "a"})
	want := map[string][]byte{"kubelet.conf.d/evenkeel.conf": []byte("ours")}
	for name, tt := range map[string]struct {
		configDir, initFile string
	}{
		"no directory": {"", ""}, "an init file": {dir, "/init"}, "an empty directory": {t.TempDir(), ""},
	} {
		files, err := (&Kubelet{ConfigDir: tt.configDir}).Files(Candidate{Data: []byte("ours"), Dropin: true}, tt.initFile)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestASymbolicLinkAsDropInDirectoryIsReadLikeTheKubeletDoes(t *testing.T) {
	dir := tree(t, map[string]string{"10.conf": "a"})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for configDir, want := range map[string]int{link: 1, link + "/": 2} { // WalkDir does not follow the first
		files, err := (&Kubelet{ConfigDir: configDir}).Files(Candidate{Dropin: true}, "")
		if err != nil || len(files) != want {
			t.Errorf("%s: %d files, want %d, error %v", configDir, len(files), want, err)
		}
	}
}

func TestAnErrorNamesTheDropInDirectoryThatCannotBeCopied(t *testing.T) {
	tests := map[string]struct {
		make func(dir string) error
		want string // after the path of the directory
	}{
		"it is not there":           {os.Remove, ": lstat DIR: no such file or directory"},
		"a link that leads nowhere": {func(dir string) error { return os.Symlink("nowhere", dir+"/x.conf") }, ": open DIR/x.conf: no such file or directory"},
		"a link to a directory":     {func(dir string) error { return os.Symlink("..", dir+"/x.conf") }, ": DIR/x.conf is not a regular file"},
		"a pipe":                    {func(dir string) error { return syscall.Mkfifo(dir+"/x.conf", 0o600) }, ": DIR/x.conf is not a regular file"},
		"too many": {func(dir string) error {
			var errs []error
			for i := range 1001 {
				errs = append(errs, os.WriteFile(fmt.Sprintf("%s/%d.conf", dir, i), nil, 0o600))
			}
			return errors.Join(errs...)
		}, ": it has more than 1000 files"},
		"too large": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.conf", make([]byte, 5<<20), 0o600), os.WriteFile(dir+"/b.conf", make([]byte, 3<<20+1), 0o600))
		}, ": DIR/b.conf is larger than the limit of 3145728 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll("the node's own drop-in directory DIR"+tt.want, "DIR", dir)
			k := fake(t, "accept")
			k.ConfigDir = dir
			if _, err := k.Files(Candidate{Dropin: true}, ""); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			checkVerdict(t, dryRunner(t, k).Check(context.Background(), Candidate{Dropin: true}, ""), CouldNotTell, 0, want)
		})
	}
}

func TestVerdictsOnDropInsWithAFakeKubelet(t *testing.T) {
	const lenient = `log '"Using lenient decoding as strict decoding failed" err="unknown field x"'`
	tests := []struct {
		name, body string
		outcome    Outcome
		stage      int
		message    string
	}{
		{"accepted in both stages", `case "$config$dropins" in LOCALOWNOURS|LOCALOWN|OURS|*no-runtime*) accept;; esac; end "$config$dropins"`, Accepted, 2, ""},
		{"unknown field", `case "$config" in OURS) ` + lenient + `;; esac; accept`, Rejected, 1, "unknown field x"},
		{"unknown field and another error", `case "$config" in OURS) ` + lenient + `; end "no good";; esac; accept`, Rejected, 1, "unknown field x"},
		{"incomplete", `case "$config" in OURS) end "no good";; esac; accept`, Accepted, 2, ""},
		{"not to be decoded", `case "$config" in OURS) end "failed to load kubelet config file, path: $file, error: no good";; esac; accept`, Rejected, 1, "no good"},
		{"no answer about strict decoding", `case "$config" in OURS) kill -9 $$;; esac; accept`, CouldNotTell, 1, "the dry run of the kubelet: it died: signal: killed"},
		{"rejected in stage 1", `case "$dropins" in *OURS) end "no good";; esac; accept`, Rejected, 1, "no good"},
		{"rejected in stage 1, with an unknown field", `case "$dropins$config" in *OURSLOCAL) end "no good";; OURS) ` + lenient + `;; esac; accept`, Rejected, 1, "no good; unknown field x"},
		{"no answer at all", `case "$dropins" in *OURS) kill -9 $$;; esac; accept`, CouldNotTell, 1, "the dry run of the kubelet: it died: signal: killed"},
		{"rejected in stage 2", `case "$stage$dropins" in 2*OURS) end "no good";; esac; accept`, Rejected, 2, "no good"},
		{"unknown field in the local configuration", `case "$config" in LOCAL) ` + lenient + `;; esac; accept`, Accepted, 2, ""},
		{"a local configuration that fails", `case "$config" in LOCAL) end "no good";; esac; accept`, CouldNotTell, 1,
			"no good (but the local configuration does not pass the dry run either, for the same reason)"},
		{"the wrapping of errors", `for a in "$@"; do case "$a" in --config-dir=*scratch*) d="${a#--config-dir=}"
			end "failed to merge kubelet configs: failed to walk through kubelet dropin directory \\\"$d\\\": failed to load kubelet dropin file, path: $d/evenkeel.conf, error: $d is no good";; esac; done; accept`,
			Rejected, 1, "kubelet.conf.d is no good"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := fake(t, tt.body)
			k.ConfigDir = tree(t, map[string]string{"10.conf": "OWN"})
			k.Config = filepath.Join(tree(t, map[string]string{"local": "LOCAL"}), "local")
			checkVerdict(t, dryRunner(t, k).Check(context.Background(), Candidate{Data: []byte("OURS"), Dropin: true}, ""), tt.outcome, tt.stage, tt.message)
		})
	}
}

func TestNullInADropInIsRemovedBeforeStrictDecoding(t *testing.T) {
	const data = "{a: null, b: {c: null, d: [1]}}"
	const pruned = `case "$config" in *null*) end "failed to load kubelet config file, path: $file, error: no good";; '{"b":{"d":[1]}}') `
	for name, tt := range map[string]struct {
		body    string
		outcome Outcome
		stage   int
		message string
	}{
		"and is good then":        {pruned + `;; esac; accept`, Accepted, 2, ""},
		"with an unknown field":   {pruned + `log '"Using lenient decoding as strict decoding failed" err="unknown field x"';; esac; accept`, Rejected, 1, "unknown field x"},
		"and cannot be even then": {pruned + `end "failed to load kubelet config file, path: $file, error: no good then";; esac; accept`, Rejected, 1, "no good then"},
	} {
		t.Run(name, func(t *testing.T) {
			h := dryRunner(t, fake(t, tt.body))
			checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte(data), Dropin: true}, ""), tt.outcome, tt.stage, tt.message)
		})
	}
}

func TestAKubeletWithoutDropInSupportRejectsDropIns(t *testing.T) {
	for version, want := range map[string]struct {
		outcome Outcome
		stage   int
		message string
	}{
		"v1.29.3":                   {Rejected, 0, `kubelet v1.29.3 is too old for a drop-in: --config-dir works from v1.30 on; use the key "kubelet"`},
		"v1.30.0+k3s":               {Accepted, 2, ""},
		"v2.0.0":                    {Accepted, 2, ""},
		"v99999999999999999999.1.0": {CouldNotTell, 0, "kubelet version v99999999999999999999.1.0: strconv.ParseInt: parsing \"99999999999999999999\": value out of range"},
		"rubbish":                   {CouldNotTell, 0, `kubelet --version: exit code 0, "Kubernetes rubbish" is not a version`},
	} {
		t.Run(version, func(t *testing.T) {
			t.Setenv("VERSION", version)
			h := dryRunner(t, fake(t, "accept"))
			checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("x"), Dropin: true}, ""), want.outcome, want.stage, want.message)
			checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("x")}, ""), Accepted, 2, "")
		})
	}
}

func TestTheVersionIsCachedUntilTheBinaryIsReplaced(t *testing.T) {
	t.Setenv("VERSION", "v1.36.3")
	k := fake(t, "accept")
	h := dryRunner(t, k)
	dropin := Candidate{Data: []byte("x"), Dropin: true}
	checkVerdict(t, h.Check(context.Background(), dropin, ""), Accepted, 2, "")
	t.Setenv("VERSION", "v1.29.3")
	checkVerdict(t, h.Check(context.Background(), dropin, ""), Accepted, 2, "")
	if err := os.Rename(fake(t, "accept").Path, k.Path); err != nil {
		t.Fatal(err)
	}
	if v := h.Check(context.Background(), dropin, ""); v.Outcome != Rejected {
		t.Errorf("got %s: %s", v.Outcome, v.Message)
	}
}

func TestADryRunThatCannotWriteItsFilesGivesNoVerdict(t *testing.T) {
	h := dryRunner(t, fake(t, "accept"))
	got := h.run(context.Background(), dryRun{stage: 1, config: configuration{files: map[string][]byte{"pki/kubelet.crt/x": nil}}})
	if got.outcome != CouldNotTell || !strings.HasPrefix(got.message, "no scratch file for the dry run: mkdir "+h.scratch) {
		t.Errorf("got %s: %s", got.outcome, got.message)
	}
	got = h.run(context.Background(), dryRun{stage: 1, config: configuration{files: map[string][]byte{"pki": nil}}})
	if got.outcome != CouldNotTell || !strings.HasSuffix(got.message, "/pki: is a directory") {
		t.Errorf("got %s: %s", got.outcome, got.message)
	}
}

func TestLocalDigestChangesWithEveryFileOfTheLocalConfiguration(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	config, init := write("config.yaml", "maxPods: 1"), write("init/kubelet", "maxPods: 2")
	write("conf.d/10.conf", "a")
	k := &Kubelet{Config: config, ConfigDir: filepath.Join(dir, "conf.d")}
	seen := map[string]string{}
	must := func(step, initFile string) {
		t.Helper()
		digest := k.LocalDigest(initFile)
		if digest != k.LocalDigest(initFile) {
			t.Errorf("%s: it is not the same twice", step)
		}
		if before, ok := seen[digest]; ok {
			t.Errorf("%s: it is as it was: %s", step, before)
		}
		seen[digest] = step
	}
	must("as it is", "")
	must("an init file", init)
	write("config.yaml", "maxPods: 3")
	must("the file was edited", "")
	write("conf.d/10.conf", "b")
	must("a drop-in was edited", "")
	write("conf.d/20.conf", "b")
	must("a drop-in was added", "")
	if err := os.Rename(filepath.Join(dir, "conf.d/20.conf"), filepath.Join(dir, "conf.d/05.conf")); err != nil {
		t.Fatal(err)
	}
	must("a drop-in was renamed", "")
	if err := os.Symlink("nowhere", filepath.Join(dir, "conf.d/30.conf")); err != nil {
		t.Fatal(err)
	}
	must("a drop-in cannot be read", "")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	must("the file is gone", "")
}
