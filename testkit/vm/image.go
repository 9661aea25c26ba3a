// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

//go:embed build.sh
var buildScript string

// packages are the packages of the image besides Debian's minimum.
const packages = "systemd-sysv,systemd-timesyncd,udev,dbus,kmod,iproute2,iptables,containerd,runc,containernetworking-plugins," +
	"linux-image-amd64,zstd,e2fsprogs,dmsetup,procps,ca-certificates,util-linux,mount,conntrack"

// ErrMissing means that this machine cannot run or build a virtual machine; the
// error that wraps it says what is missing.
var ErrMissing = errors.New("this machine cannot run a virtual machine")

// Image is a bootable disk with Debian, containerd, a kubelet that is not
// enabled, and the images of testkit/localcluster.
type Image struct {
	Disk   string // raw; never written after it was made
	Kernel string
	Initrd string
}

// Build makes the image with this kubelet, or returns the one of an earlier
// call if nothing that it contains has changed. Debian is downloaded once. All
// files are in dir. Progress goes to log. The error wraps ErrMissing if a
// program or root is missing.
func Build(ctx context.Context, dir, kubelet string, log io.Writer) (_ *Image, err error) {
	defer must.Catch(&err)

	var missing []string
	for _, name := range []string{"qemu-system-x86_64", "qemu-img", "debootstrap", "mkfs.ext4", "zstd"} {
		if _, err := lookup(name); err != nil {
			missing = append(missing, name)
		}
	}

	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}

	must.That(len(missing) == 0, "%w: missing %s", ErrMissing, strings.Join(missing, ", "))
	module := must.Get(localcluster.ModuleRoot())
	must.OK(os.MkdirAll(dir, 0o755))
	lock := must.Get(os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600))
	defer lock.Close()
	must.OK(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	added := must.Get(addedFiles(ctx, module, dir, kubelet))
	digest := must.Get(digestOf(added))
	disk := filepath.Join(dir, fmt.Sprintf("node-%.12s.raw", digest))
	i := &Image{Disk: disk, Kernel: disk + ".vmlinuz", Initrd: disk + ".initrd"}
	if _, err := os.Stat(disk); err == nil {
		return i, nil
	}

	for _, file := range must.Get(filepath.Glob(filepath.Join(dir, "node-*"))) {
		must.OK(os.Remove(file))
	}

	fmt.Fprintln(log, "building the disk of the virtual machine; the first time, Debian is downloaded, which takes minutes")
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", buildScript, "build.sh", dir, disk, added)
	cmd.Env = append(os.Environ(), "PACKAGES="+packages, "PATH="+searchPath(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out := must.Get(os.Create(filepath.Join(dir, "build.log")))
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	must.That(err == nil, "build the disk of the virtual machine: %w: see %s", err, out.Name())

	return i, nil
}

func searchPath() string { return os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin" }

// lookup finds a program, also in the directories for administrators.
func lookup(name string) (string, error) {
	for dir := range strings.SplitSeq(searchPath(), ":") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}

	return "", fmt.Errorf("%w: missing %s", ErrMissing, name)
}

// addedFiles collects what the image has besides Debian, and returns the
// directory.
func addedFiles(ctx context.Context, module, dir, kubelet string) (_ string, err error) {
	defer must.Catch(&err)

	added := filepath.Join(dir, "added")
	must.OK(os.RemoveAll(added))
	must.OK(os.CopyFS(added, os.DirFS(filepath.Join(module, "testkit", "vm", "root"))))
	guest, sleep := filepath.Join(added, "usr/local/bin/vm-guest"), filepath.Join(dir, "sleep")
	for program, source := range map[string]string{guest: "./testkit/vm/guest", sleep: "./testkit/localcluster/sleep"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, source)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		must.That(err == nil, "build %s: %w\n%s", source, err, out)
	}

	archive, _ := must.Get2(image.Image{
		References: []string{localcluster.PauseImage, localcluster.SleepImage},
		Programs:   []image.Program{{Path: "/sleep", File: sleep}},
	}.Archive())
	program, err := os.ReadFile(kubelet)
	must.That(err == nil, "run `make tools`: %w", err)

	return added, errors.Join(
		os.MkdirAll(filepath.Join(added, "var/lib/vm"), 0o755),
		os.WriteFile(filepath.Join(added, "var/lib/vm/images.tar"), archive, 0o644),
		os.MkdirAll(filepath.Join(added, "usr/bin"), 0o755),
		os.WriteFile(filepath.Join(added, "usr/bin/kubelet"), program, 0o755),
	)
}

// digestOf returns a digest of all files in a directory and of how the image is
// built.
func digestOf(dir string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, buildScript, packages)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		content, err := os.ReadFile(path)
		fmt.Fprintln(hash, strings.TrimPrefix(path, dir))
		hash.Write(content)

		return err
	})

	return fmt.Sprintf("%x", hash.Sum(nil)), err
}

// Overlay makes a disk that begins as the image's, in the format qcow2, and
// keeps only what differs. It has 16 GiB, of which the file system uses the
// image's part until the machine enlarges it.
func (i *Image) Overlay(ctx context.Context, path string) (_ Disk, err error) {
	defer must.Catch(&err)

	img := must.Get(lookup("qemu-img"))
	base := must.Get(filepath.Abs(i.Disk))
	out, err := exec.CommandContext(ctx, img, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, path, "16G").CombinedOutput()
	must.That(err == nil, "qemu-img: %w: %s", err, out)

	return Disk{File: path, Format: "qcow2"}, nil
}
