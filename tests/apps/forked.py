"""Python programs as children of one parent that has imported what they import, so that their times can be compared.

Two processes of Python differ by up to 1.5 times for the same work: by where things lie in memory, and by phases of the
host. The children of one parent have the same addresses, and what is measured begins behind the imports. Each child gets
its variables before its first call of CUDA, and ends as any program does.

usage: forked.py MODULE...
The parent imports the modules, says "ready", and makes a child for each line of standard input, a request in JSON.
It answers with a line of JSON: the status of the child and its seconds. If it cannot serve, its first line says why.
"""

import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time

NATIVE = {"ALLOGRAFT_DISABLE": "1"}  # preloaded, too: it hands out the driver's own functions


class Parent:
    """A parent, seen from the process that measures. One request at a time."""

    def __init__(self, library, modules):
        env = {k: v for k, v in os.environ.items() if not k.startswith("ALLOGRAFT_")}
        # With this, PyTorch sees whether there is a GPU without a call of CUDA.
        env.update(LD_PRELOAD=os.path.abspath(library), PYTORCH_NVML_BASED_CUDA_CHECK="1")
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), *modules], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said,
                                        start_new_session=True)
        answer = self.process.stdout.readline().strip()
        if answer != "ready":
            self.process.wait()
            self.said.seek(0)
            answer = answer or (self.said.read().strip().splitlines() or ["it ended"])[-1]
            self.close()
            raise OSError(f"no parent for {', '.join(modules)}: {answer}")

    def run(self, command, folder, environment, timeout):
        """(status, standard output, standard error, seconds). Of the environment, the settings of Allograft count: the
        others are the parent's. A child that takes too long ends the parent, too."""
        variables = {k: v for k, v in environment.items() if k.startswith("ALLOGRAFT_")}
        with tempfile.TemporaryDirectory() as place:
            out, err = (os.path.join(place, name) for name in ("out", "err"))
            request = {"command": command, "folder": folder, "variables": variables, "out": out, "err": err}
            print(json.dumps(request), file=self.process.stdin, flush=True)
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                self.close()
                raise subprocess.TimeoutExpired(command, timeout)
            answer = json.loads(self.process.stdout.readline() or '{"status": "its parent died", "seconds": 0}')
            return answer["status"], read(out), read(err), answer["seconds"]

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.said):
            stream.close()


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


# -- in the parent ---------------------------------------------------------------------------------------------------

def uses_cuda():
    """Has this process begun with CUDA? A child could not use it then."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # that of the folder itself
    return any(link.startswith("/dev/nvidia") for link in links)


def become(request):
    """In the child: runs the program as if it had been started with these words."""
    os.chdir(request["folder"])
    os.environ.update(request["variables"])
    for fd, path in enumerate((os.devnull, request["out"], request["err"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, fd)
        os.close(file)
    sys.argv = request["command"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve():
    """Returns in a child, behind its program, and at the end of the requests."""
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        pid = os.fork()
        if not pid:
            become(json.loads(line))
            return
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"status": status, "seconds": time.perf_counter() - began}), file=answers, flush=True)


def main():
    for module in sys.argv[1:]:
        importlib.import_module(module)
        if uses_cuda():
            print(f"importing {module} begins with CUDA", flush=True)
            sys.exit(1)
    serve()


if __name__ == "__main__":
    main()
