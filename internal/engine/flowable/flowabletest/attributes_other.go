//go:build !linux

package flowabletest

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
