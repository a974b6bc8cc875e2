"""The command `allograft` of a wheel: executes the one in this folder."""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    command = os.path.join(FOLDER, "bin", "allograft")
    if not os.path.exists(command):
        sys.exit("allograft: the command is part of a wheel (pip install tools/python); %s has the module only" % FOLDER)
    try:
        os.execv(command, [command, *sys.argv[1:]])
    except OSError as error:
        sys.exit("allograft: %s: %s" % (command, error.strerror))
