"""A browser without a window, for tests of pages: Chromium, spoken to in the DevTools protocol over two pipes."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SECONDS = 60


def find():
    """The program; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `said` gathers what should not be: exceptions, messages on the console, refused scripts."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        requests, self.requests = os.pipe()
        answers, back = os.pipe()

        def take_pipes():  # Chromium reads descriptor 3 and writes 4
            kept = os.dup(requests), os.dup(back)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "ALLOGRAFT_"))}
        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--remote-debugging-pipe", "--user-data-dir=" + self.folder.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=take_pipes, env=env)
        os.close(requests)
        os.close(back)
        self.answers = os.fdopen(answers, "rb")
        self.number, self.session, self.said, self.seen = 0, None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def close(self):
        os.close(self.requests)
        self.answers.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def receive(self):
        message = b""
        while not message.endswith(b"\0"):
            byte = self.answers.read(1)
            if not byte:
                raise EOFError("the browser ended")
            message += byte
        return json.loads(message[:-1])

    def note(self, message):
        method, given = message.get("method"), message.get("params", {})
        self.seen.append(method)
        if method == "Runtime.exceptionThrown":
            self.said.append(given["exceptionDetails"].get("exception", {}).get("description") or str(given))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str([one.get("value", one.get("description")) for one in given["args"]]))
        elif method == "Log.entryAdded":
            self.said.append(given["entry"]["text"])

    def call(self, method, **given):
        self.number += 1
        request = {"id": self.number, "method": method, "params": given}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.requests, json.dumps(request).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def open(self, path, width=1000, height=900, dark=False, scripts=True):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.seen.clear()
        self.call("Page.navigate", url="about:blank")  # else another # alone would load nothing
        self.wait_until("Page.loadEventFired")
        self.seen.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_until("Page.loadEventFired")

    def wait_until(self, event):
        while event not in self.seen:
            self.note(self.receive())

    def ask(self, expression):
        """The value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for_a_frame(self):
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def middle(self, selector, x=.5, y=.5):
        """A point of an element, which is first brought into view."""
        box = self.ask(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                       " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        return box[0] + x * box[2], box[1] + y * box[3]

    def mouse(self, kind, point, **given):
        self.call("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], **given)

    def move(self, point):
        self.mouse("mouseMoved", point)
        self.wait_for_a_frame()

    def click(self, selector, times=1):
        point = self.middle(selector)
        self.mouse("mouseMoved", point)
        for count in range(1, times + 1):
            self.mouse("mousePressed", point, button="left", clickCount=count)
            self.mouse("mouseReleased", point, button="left", clickCount=count)
        self.wait_for_a_frame()

    def drag(self, start, end):
        self.mouse("mouseMoved", start)
        self.mouse("mousePressed", start, button="left", buttons=1, clickCount=1)
        for part in (.3, .6, 1):
            self.mouse("mouseMoved", [a + part * (b - a) for a, b in zip(start, end)], button="left", buttons=1)
        self.mouse("mouseReleased", end, button="left", clickCount=1)
        self.wait_for_a_frame()

    def press(self, key, text=None):
        given = {"key": key, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.wait_for_a_frame()

    def picture(self, path):
        """The whole page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
