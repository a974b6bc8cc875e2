// Goroutines on threads of their own allocate, write and free through cgo. Go's runtime stops them
// by signals on alternate stacks meanwhile, ends threads with the goroutines that keep them, and
// starts children; and the program ends without libc's exit.
package main

/*
typedef unsigned long long address;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(address *p, unsigned long bytes);
int cuMemsetD8Async(address p, unsigned char value, unsigned long n, void *stream);
int cuMemcpyDtoH_v2(void *to, address from, unsigned long bytes);
int cuMemFree_v2(address p);
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	size    = 4096
	threads = 48
	turns   = 30
)

var context unsafe.Pointer
var wrong int64

func need(code C.int, what string) {
	if code != 0 {
		fmt.Println(what, code)
		os.Exit(98)
	}
}

func turn(value byte) {
	var p C.address
	var bytes [size]byte

	need(C.cuMemAlloc_v2(&p, size), "alloc")
	need(C.cuMemsetD8Async(p, C.uchar(value), size, nil), "memset")
	need(C.cuMemcpyDtoH_v2(unsafe.Pointer(&bytes[0]), p, size), "copy")
	need(C.cuMemFree_v2(p), "free")
	for _, b := range bytes {
		if b != value {
			atomic.AddInt64(&wrong, 1)
		}
	}
}

// The goroutine keeps its thread, which ends with it.
func work(number int, all *sync.WaitGroup) {
	defer all.Done()
	runtime.LockOSThread()
	need(C.cuCtxSetCurrent(context), "set current")
	for i := 0; i < turns; i++ {
		turn(byte(number + i))
	}
}

// Work for the garbage collector, which stops the others.
func litter(stop chan bool) {
	for {
		select {
		case <-stop:
			return
		default:
			_ = make([]byte, 1<<16)
		}
	}
}

func main() {
	var device C.int
	var all sync.WaitGroup
	stop := make(chan bool)

	runtime.LockOSThread()
	need(C.cuInit(0), "init")
	need(C.cuDeviceGet(&device, 0), "device")
	need(C.cuDevicePrimaryCtxRetain(&context, device), "retain")
	need(C.cuCtxSetCurrent(context), "set current")
	go litter(stop)
	all.Add(threads)
	for i := 0; i < threads; i++ {
		go work(i, &all)
	}
	for i := 0; i < 5; i++ {
		if err := exec.Command("/bin/sh", "-c", "exit 0").Run(); err != nil {
			fmt.Println("child:", err)
		}
	}
	all.Wait()
	close(stop)
	turn(7)
	fmt.Println("wrong bytes:", wrong)
}
