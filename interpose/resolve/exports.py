# Writes the linker's version script from hooks.def and passages.def: the hooked symbols, the libc ones
# and the passages.
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
names = re.findall(r"^AG_HOOK(?:_IF)?\(\w+, (\w+),", text, re.M) + re.findall(r"^AG_LIBC\((\w+),", text, re.M)
names += re.findall(r"^AG_PASSAGE(?:_\w+)?\((\w+)\)", open(sys.argv[2], encoding="utf-8").read(), re.M)
with open(sys.argv[3], "w", encoding="utf-8") as out:
    out.write("{\nglobal:\n" + "".join(f"    {name};\n" for name in sorted(names)) + "local:\n    *;\n};\n")
