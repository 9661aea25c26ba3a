// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const goarch = runtime.GOARCH

// isSignature reports whether a file is there only in a signed release.
func isSignature(name string) bool { return strings.HasSuffix(name, ".sig") || name == "cosign.pub" }

func digest(data string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(data))) }

func TestManifestsNameTheImagesOfTheReleaseByDigest(t *testing.T) {
	all := files(t, made)
	image := func(name string) string {
		archive := tar.NewReader(strings.NewReader(all["evenkeel-"+name+"-"+version+"-"+goarch+".tar"]))
		blobs := map[string]string{}
		for h, err := archive.Next(); err == nil; h, err = archive.Next() {
			blobs[h.Name] = string(assert.Value(io.ReadAll(archive))(t))
		}

		var index struct{ Manifests []struct{ Digest string } }
		assert.NoError(t, json.Unmarshal([]byte(blobs["index.json"]), &index), name)
		assert.Must(t, len(index.Manifests) == 1, "%s: %+v", name, index)
		sum := digest(blobs["blobs/"+strings.Replace(index.Manifests[0].Digest, ":", "/", 1)])

		return "evenkeel.dev/" + name + ":" + version + "@sha256:" + sum
	}
	agent, controller := "image: "+image("agent"), "image: "+image("controller")
	for name, want := range map[string][]string{
		"install.yaml": {
			"# evenkeel " + version + ", config/base: kubectl apply -f install.yaml\n", agent, controller, "kind: Namespace\n", "kind: CustomResourceDefinition\n", "kind: ClusterRoleBinding\n",
			"kind: ValidatingAdmissionPolicy\n", "kind: PodDisruptionBudget\n", "name: evenkeel-controller\n", "name: evenkeel-installer\n", "name: evenkeel-uninstaller\n",
		},
		"evenkeel-controller-" + version + ".yaml":  {controller},
		"evenkeel-installer-" + version + ".yaml":   {agent},
		"evenkeel-self-hosted-" + version + ".yaml": {", config/self-hosted: kubectl apply -f evenkeel-self-hosted-" + version + ".yaml\n", "image: evenkeel.dev/kubelet:v1."}, // which has the kubelet's version
	} {
		for _, words := range want {
			assert.That(t, strings.Contains(all[name], words), "%s has no %q", name, words)
		}
	}

	for _, line := range regexp.MustCompile(`(?m)^\s*(- )?image: .*$`).FindAllString(all["install.yaml"], -1) {
		line = strings.TrimLeft(line, " -")
		assert.That(t, line == agent || line == controller, "install.yaml has %s", line)
	}

	for name := range all {
		assert.That(t, !strings.Contains(name, "-default-") && !strings.Contains(name, "-base-"), "there is %s beside install.yaml", name)
	}
}

func TestTheProvenanceHasAllFiles(t *testing.T) {
	all := files(t, made)
	provenance := "evenkeel-" + version + ".provenance.json"
	type resource struct {
		Name, URI string
		Digest    map[string]string
	}
	var statement struct {
		Type          string `json:"_type"`
		Subject       []resource
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				BuildType                              string
				ExternalParameters, InternalParameters map[string]string
				ResolvedDependencies                   []resource
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	assert.NoError(t, json.Unmarshal([]byte(all[provenance]), &statement))
	var want []resource
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !isSignature(name) && name != provenance && name != "SHA256SUMS" { // which is made of it
			want = append(want, resource{Name: name, Digest: map[string]string{"sha256": digest(all[name])}})
		}
	}

	assert.NoDiff(t, cmp.Diff(want, statement.Subject))
	const repository = "https://github.com/evenkeel/evenkeel"
	build := statement.Predicate.BuildDefinition
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" ||
		!strings.HasPrefix(build.BuildType, repository) || !strings.HasPrefix(statement.Predicate.RunDetails.Builder.ID, repository) {
		t.Errorf("the types are %s", all[provenance][strings.Index(all[provenance], `"predicateType"`):])
	}

	parameters := map[string]string{"version": version, "registry": "evenkeel.dev", "downloads": repository + "/releases/download/" + version}
	assert.NoDiff(t, cmp.Diff(parameters, build.ExternalParameters))
	assert.That(t, build.InternalParameters["go"] == runtime.Version(), "it was built with %v", build.InternalParameters)
	source := []resource{{URI: "git+" + repository + "@" + commit, Digest: map[string]string{"gitCommit": commit}}}
	assert.NoDiff(t, cmp.Diff(source, build.ResolvedDependencies))
}

func TestEveryFileHasASignatureThatCosignAccepts(t *testing.T) {
	all := files(t, made)
	block, rest := pem.Decode([]byte(all["cosign.pub"]))
	assert.Must(t, block != nil && block.Type == "PUBLIC KEY" && len(rest) == 0, "cosign.pub is %s", all["cosign.pub"])
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	assert.Must(t, err == nil && key.PublicKey.Equal(public), "cosign.pub is of another key, %v", err)
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("openssl does not check the signatures: ", err)
	}

	for name, data := range all {
		if isSignature(name) {
			continue
		}

		signature, err := base64.StdEncoding.DecodeString(all[name+".sig"])
		sum := sha256.Sum256([]byte(data))
		assert.That(t, err == nil && ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature),
			"the signature of %s is %q, %v", name, all[name+".sig"], err)
		if openssl == "" {
			continue
		}

		cmd := exec.Command("bash", "-c", `"$1" dgst -sha256 -verify cosign.pub -signature <(base64 -d "$0.sig") "$0"`, name, openssl)
		cmd.Dir = made
		said, err := cmd.CombinedOutput()
		assert.That(t, err == nil && string(said) == "Verified OK\n", "openssl says of %s: %v, %s", name, err, said)
	}
}

func TestTheSameKeyMakesTheSameSignatures(t *testing.T) {
	der, err := x509.MarshalECPrivateKey(key) // the other format
	assert.NoError(t, err)
	sec1 := filepath.Join(t.TempDir(), "cosign.key")
	assert.NoError(t, os.WriteFile(sec1, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	out, said, err := remake(t, "", "-key="+sec1)
	assert.Must(t, err == nil && said == "", "%v: %s", err, said)
	first, second, same := files(t, made), files(t, out), 0
	for name := range second {
		if isSignature(name) || first[name] != second[name] {
			continue
		}

		same++
		assert.Equal(t, second[name+".sig"], first[name+".sig"], "the signature of", name)
	}

	assert.That(t, same >= 20 && first["cosign.pub"] == second["cosign.pub"],
		"%d files are the same; the public keys are %s and %s", same, first["cosign.pub"], second["cosign.pub"])
}

func TestAnUnsuitableKeyIsRefusedBeforeTheBuild(t *testing.T) {
	pkcs8 := func(private any, err error) []byte {
		der, marshalErr := x509.MarshalPKCS8PrivateKey(private)
		assert.NoError(t, errors.Join(err, marshalErr))
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	_, edwards, err := ed25519.GenerateKey(nil)
	assert.NoError(t, err)
	for _, tt := range []struct {
		name, want string
		key        []byte
	}{
		{"no file", "the key for the signatures: open key: no such file or directory", nil},
		{"no PEM", "the key for the signatures, key, is not PEM: want an unencrypted ECDSA P-256 key in PEM", []byte("secret")},
		{"a key of cosign", "the key for the signatures, key, starts with ENCRYPTED SIGSTORE PRIVATE KEY: want", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY"})},
		{"no key in PKCS 8", "the key for the signatures, key, cannot be read (", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})},
		{"no key in SEC 1", "the key for the signatures, key, cannot be read (", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")})},
		{"another curve", "the key for the signatures, key, is of another kind: want", pkcs8(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))},
		{"another kind", "the key for the signatures, key, is of another kind: want", pkcs8(edwards, nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.key != nil {
				assert.NoError(t, os.WriteFile(filepath.Join(dir, "key"), tt.key, 0o600))
			}

			said, err := makeRelease(t, dir, "-check", "-version="+version, "-time=1", "-key=key")
			assert.That(t, err != nil && strings.Contains(said, tt.want), "%v, %s, want %s", err, said, tt.want)
		})
	}
}
