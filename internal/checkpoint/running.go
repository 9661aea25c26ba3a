package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// runningFile is beside the records, but none of them.
const runningFile = "running"

// SetRunning keeps what an agent says of the kubelet that it runs, for Running.
// It counts only as long as that agent does, so that it need not survive a power
// cut.
func SetRunning(fsys atomicfile.FS, dir string, about []byte) error {
	path := filepath.Join(dir, runningFile)
	temp := fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), atomicfile.TempSuffix)
	f, err := fsys.Create(temp, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(about)
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // the first error is the one to tell
	}
	return err
}

// ForgetRunning removes what an agent that has ended kept with SetRunning, if
// there is anything.
func ForgetRunning(fsys atomicfile.FS, dir string) error {
	if err := fsys.Remove(filepath.Join(dir, runningFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Running returns what an agent has kept with SetRunning. It is no news of an
// agent that has ended.
func Running(fsys atomicfile.FS, dir string) ([]byte, error) {
	return readSane(fsys, filepath.Join(dir, runningFile))
}
