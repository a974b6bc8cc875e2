# Writes the linker's version script from hooks.def: the hooked symbols, the libc ones and the trampolines.
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
names = re.findall(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),", text, re.M) + re.findall(r"^AG_LIBC\((\w+),", text, re.M)
names += re.findall(r"^AG_UNHOOKED\((\w+), TRAMPOLINE", text, re.M)
names += re.findall(r"^AG_CALL\(\w+, (\w+), [^)]*\bTRAMPOLINE", text, re.M)
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.write("{\nglobal:\n" + "".join(f"    {name};\n" for name in sorted(names)) + "local:\n    *;\n};\n")
