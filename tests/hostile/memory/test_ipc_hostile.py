# Memory between processes where one of them has no file descriptor left, or strangers throng at the socket.

import os
import re
import socket
import threading

from hostile import Case, main, often, preloaded, program, run

PROGRAM = program('hostile_ipc_descriptors')
STRANGERS = 8


def inodes_of(pid):
    """Of the sockets that the process has open, if it is one of ours: other tests run beside this one."""
    try:
        if os.readlink('/proc/%s/exe' % pid) != os.path.realpath(PROGRAM):
            return []
        links = [os.readlink('/proc/%s/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%s/fd' % pid)]
    except OSError:
        return []
    return [link[len('socket:['):-1] for link in links if link.startswith('socket:[')]


def sockets():
    """Names of the listeners of our processes."""
    inodes = {inode for pid in os.listdir('/proc') if pid.isdigit() for inode in inodes_of(pid)}
    with open('/proc/net/unix', encoding='ascii', errors='replace') as table:
        return [name for inode, name in re.findall(r' (\d+) @(allograft-ipc-[0-9a-f]+)$', table.read(),
                                                   re.MULTILINE) if inode in inodes]


class Throng:
    """Strangers who come, say nothing or nonsense, and stay or leave, for as long as it is entered."""

    def __init__(self):
        self.over = threading.Event()
        self.n_knocks = 0
        self.threads = [threading.Thread(target=self.knock_often, args=(i,)) for i in range(STRANGERS)]

    def knock_often(self, number):
        kept = []
        while not self.over.is_set():
            for name in sockets() * 10:
                kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                kept[-1].setblocking(False)
                try:
                    kept[-1].connect('\0' + name)
                    if number % 2:
                        kept[-1].send(os.urandom(1 + self.n_knocks % 200))
                    self.n_knocks += 1
                except OSError:
                    pass
                if len(kept) > 5:
                    kept.pop(0).close()
        for stranger in kept:
            stranger.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Ipc(Case):
    def test_the_host_has_no_descriptor_left(self):
        for _ in range(often(3)):
            (_, result), = self.same([PROGRAM, 'host'], variants=[{'ALLOGRAFT_POLICY': 'pool'}], quiet=False)
            self.assertNotIn('cuIpc', result.err)

    def test_the_guest_has_no_descriptor_left(self):
        # It gets an error at once, and one line says whose fault that is. The driver may do with none.
        native = run([PROGRAM, 'guest'])
        self.sane(native)
        result = preloaded([PROGRAM, 'guest'], {'ALLOGRAFT_POLICY': 'pool'})
        self.assertEqual(result.out, 'open: 1, wrong bytes: 0\nthe guest has left\n', result.err)
        said, = re.findall('^allograft: cuIpc.*', result.err, re.MULTILINE)
        self.assertIn('this process has no file descriptors left', said)

    def test_a_throng(self):
        with Throng() as throng:
            turns = 0
            while turns < often(2) or (not throng.n_knocks and turns < 50):  # the program may end before they come
                self.same([PROGRAM, 'often', '30'], variants=[{'ALLOGRAFT_POLICY': 'pool'}])
                turns += 1
        self.assertGreater(throng.n_knocks, 0)


if __name__ == '__main__':
    main()
