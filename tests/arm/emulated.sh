#!/bin/sh
# Runs a command where programs for aarch64 start as if they were this machine's, also those that others start.
#
# That is so in a namespace of its own, and nowhere else on this machine. Where the kernel has none of that kind (before
# Linux 6.7, or forbidden), --probe says so by its exit status.
set -eu

EMULATOR=$(command -v qemu-aarch64-static)
HEAD='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
MASK='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

if [ "${1:-}" != --inside ]; then
    [ "${1:-}" != --probe ] || set -- true
    exec unshare --user --map-root-user --mount sh "$0" --inside "$@"
fi
shift
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ":allograft-aarch64:M::$HEAD:$MASK:$EMULATOR:OF" >/proc/sys/fs/binfmt_misc/register
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu TEST_EMULATED=yes
exec "$@"
