//go:build unix

package atomicfile

import "syscall"

const (
	noFollow  = syscall.O_NOFOLLOW
	nonBlock  = syscall.O_NONBLOCK
	directory = syscall.O_DIRECTORY
)
