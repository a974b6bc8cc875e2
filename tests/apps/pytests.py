"""A process of pytest that ends in time, and what it found out about each test."""

import os
import signal
import subprocess
import xml.etree.ElementTree

WORST_LAST = ("passed", "skipped", "failed")
ENDED = (0, 1, 2, 5)  # all passed, some failed, some files cannot be imported, there are no tests


def first_line(text):
    return text.strip().splitlines()[0][:200] if text.strip() else ""


class Process:
    """Runs in a process group of its own; what it prints goes to the file `output`."""

    def __init__(self, python, words, folder, environment, output):
        self.output = output
        with open(output, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen([python, "-m", "pytest", *words, "-p", "no:cacheprovider", "-q",
                                             "--continue-on-collection-errors"], cwd=folder, env=environment,
                                            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def finish(self, seconds):
        """Returns its exit status, or None if it was ended because it took longer."""
        try:
            return self.process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None

    def last_line(self):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else "it says nothing"


def results(python, words, folder, environment, output, seconds):
    """Runs pytest, which prints into `output`. Returns what read_xml() does, and what went wrong with the run, or None.
    Of a run with which something went wrong, nothing is known."""
    path = output + ".xml"
    process = Process(python, [*words, "--junitxml", path], folder, environment, output)
    status = process.finish(seconds)
    if status is None:
        return {}, f"it took more than {seconds:g} s"
    try:
        if status in ENDED:
            return read_xml(path), None
    except (OSError, xml.etree.ElementTree.ParseError):
        pass
    return {}, f"pytest ended with {status}: {process.last_line()[:200]}"


def read_xml(path):
    """test -> its outcome, and why, of a file that --junitxml wrote. A file that cannot be imported is a failed test.

    A test may be named several times: for its subtests, or when its teardown fails. Its worst outcome counts."""
    found = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        outcome, why = outcome_of(case)
        name = "::".join(filter(None, [case.get("classname"), case.get("name")]))
        if name not in found or WORST_LAST.index(found[name][0]) < WORST_LAST.index(outcome):
            found[name] = outcome, why
    return found


def outcome_of(case):
    for element in case:
        if element.tag in ("failure", "error"):
            said = [line[1:] for line in (element.text or "").splitlines() if line.startswith("E ")]
            message = element.get("message") or ""
            return "failed", first_line(said[-1] if said and message == "collection failure" else message)
        if element.tag == "skipped":
            return "skipped", first_line(element.get("message") or "")
    return "passed", ""
