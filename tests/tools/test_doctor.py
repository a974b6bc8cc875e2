"""`allograft doctor`: what it finds on drivers and devices of every kind, and what its exit status says."""

import json
import os
import shutil
import tempfile
import unittest

import command
from command import CommandTest, allograft, clean_environment, paths

POOLS, MANAGED, CONCURRENT, HANDLES, PAGEABLE = 115, 83, 89, 119, 88


def environment(**changes):
    # Nothing but ours in LD_PRELOAD: the command brings a sanitizer's runtime along by itself.
    return clean_environment(**{"LD_LIBRARY_PATH": paths.sim, "LD_PRELOAD": None, **changes})


class DoctorTest(CommandTest):
    def examine(self, *args, status=0, **changes):
        """The findings as {(section, name): verdict}, and the whole."""
        result = allograft("doctor", "--json", *args, env=environment(**changes))
        whole = json.loads(result.stdout)
        # This machine is not what the tests are about: it may run MPS, or have no /dev/shm.
        if status == 0 and any(f["section"] == "machine" and f["verdict"] in ("trap", "lack") for f in whole["findings"]):
            status = 3
        self.assertEqual((result.returncode, result.stderr), (status, ""), result.stdout)
        self.assertEqual(whole["schema"], "allograft-doctor/1")
        return {(f["section"], f["name"]): f["verdict"] for f in whole["findings"]}, whole


class Machines(DoctorTest):
    def test_all_works(self):
        findings, whole = self.examine()
        self.assertIn(whole["verdict"], ("good", "trap"), whole)
        for name in ("pool", "managed", "managed_pool", "ipc"):
            self.assertEqual(findings["device 0", name], "good")
        for policy in ("pool", "managed"):
            for lookup in ("dlsym", "get-proc"):
                self.assertEqual(findings["self-test", f"{policy}_{lookup}"], "good", whole)
        self.assertEqual(findings["self-test", "graphs_dlsym"], "good", whole)

    def test_text(self):
        result = allograft("doctor", env=environment(SIM_DEVICES="2"))
        self.assertIn(result.returncode, (0, 3), result.stdout)
        self.assertEqual(result.stderr, "")
        self.assertIn("peer access between devices: 0-1\n", result.stdout)
        self.assertRegex(result.stdout, r"\n(Everything works|It works) on the simulated driver[^\n]*\n\Z")
        self.assertEqual(result.stdout.count("Simulated GPU"), 2)

    def test_without_test(self):
        findings, _ = self.examine("--no-test")
        self.assertFalse([section for section, _ in findings if section in ("bus", "self-test")])

    def test_no_driver(self):
        result = self.without_driver("doctor")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("\n FAIL  no GPU can be used here: there is no NVIDIA driver (libcuda.so.1 cannot\n"
                      "       be loaded). A container must be started", result.stdout)
        self.assertTrue(result.stdout.endswith("It does not work here; see FAIL.\n"
                                               "To try it without a GPU, on the simulated driver:\n"
                                               f"  {paths.command} doctor --simulate\n"), result.stdout)

    def test_what_it_names_without_a_driver_works(self):
        words = self.without_driver("doctor").stdout.splitlines()[-1].split()
        result = allograft(*words[1:], command=words[0], env=environment(LD_LIBRARY_PATH=None))
        self.assertIn(result.returncode, (0, 3), result.stdout)
        self.assertIn("\n       the simulated driver: what follows says nothing about a GPU, and times\n"
                      "       mean nothing\n", result.stdout)
        self.assertRegex(result.stdout, r"\n(Everything works|It works) on the simulated driver[^\n]*\n\Z")

    def without_driver(self, *words):
        # Of a machine with a driver this test cannot speak.
        result = allograft(*words, env=environment(LD_LIBRARY_PATH=None))
        if "no NVIDIA driver" not in result.stdout:
            self.skipTest("this machine has a driver")
        return result

    def test_simulated(self):
        findings, whole = self.examine("--simulate", LD_LIBRARY_PATH=None)
        self.assertIs(whole["simulated"], True)
        self.assertEqual(findings["driver", "simulated"], "info")
        for lookup in ("dlsym", "get-proc"):
            self.assertEqual(findings["self-test", "pool_" + lookup], "good", whole)

    def test_simulated_goes_before_any_other(self):
        findings, whole = self.examine("--simulate", "--no-test", SIM_DRIVER_VERSION="13000",
                                       LD_LIBRARY_PATH=os.path.join(paths.sim, "age", "11040"))
        self.assertEqual(findings["driver", "replay"], "good", whole)

    def test_no_line_is_wider_than_a_terminal(self):
        for words in (["doctor", "--simulate"], ["doctor"]):
            for line in allograft(*words, env=environment(LD_LIBRARY_PATH=None)).stdout.splitlines():
                if "/" not in line:
                    self.assertLessEqual(len(line), 80)

    def test_no_device(self):
        findings, whole = self.examine(status=1, SIM_FAIL="cuInit:1:100")
        self.assertEqual(findings["driver", "devices"], "fail")
        self.assertIn("CUDA_ERROR_NO_DEVICE", whole["findings"][-1]["text"])


class Lacks(DoctorTest):
    def lacks(self, attributes, name, verdict="lack"):
        findings, _ = self.examine("--no-test", status=3, SIM_ATTRIBUTES=attributes)
        self.assertEqual(findings["device 0", name], verdict)

    def test_no_pools(self):
        self.lacks(f"{POOLS}=0", "pool")

    def test_no_managed_memory(self):
        self.lacks(f"{CONCURRENT}=0", "managed")
        self.lacks(f"{CONCURRENT}=0,{MANAGED}=0", "managed")

    def test_no_handles(self):
        self.lacks(f"{HANDLES}=0", "ipc")

    def test_pageable_access(self):
        self.lacks(f"{PAGEABLE}=1", "pageable", "trap")

    def test_what_falls_back_is_told(self):
        findings, _ = self.examine(status=3, SIM_ATTRIBUTES=f"{POOLS}=0")
        self.assertEqual(findings["self-test", "pool_dlsym"], "lack")
        self.assertEqual(findings["self-test", "managed_dlsym"], "good")

    def test_old_drivers(self):
        for age, replay in ((11040, "lack"), (12020, "lack"), (12040, "good")):
            folder = os.path.join(paths.sim, "age", str(age))
            findings, whole = self.examine("--no-test", status=3, LD_LIBRARY_PATH=folder,
                                            SIM_DRIVER_VERSION=str(age))
            self.assertEqual(findings["driver", "replay"], replay)
            self.assertEqual(findings["device 0", "managed_pool"], "lack", whole)


class Bus(DoctorTest):
    def bus(self, status=0, **changes):
        """What it says of copies, by the finding's name."""
        findings, whole = self.examine(status=status, **changes)
        self.assertEqual({findings["bus", f["name"]] for f in whole["findings"] if f["section"] == "bus"}, {"info"})
        return {f["name"]: f["text"] for f in whole["findings"] if f["section"] == "bus"}

    def test_times_of_the_simulated_driver_are_not_shown(self):
        self.assertEqual(self.bus(), {"pageable": "pageable memory: 4.00 MiB copied to device 0 and back",
                                      "pinned": "pinned memory: 4.00 MiB copied to device 0 and back",
                                      "moves": "OOM=page: a piece of 4.00 MiB moved to the host and back"})

    def test_of_a_gpu(self):
        # To the doctor, the simulated driver is a GPU's once it does not say what it is.
        mark = b"allograft_simulated_driver"
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(paths.sim, "libcuda.so.1"), "rb") as file:
                driver = file.read()
            self.assertIn(mark, driver)
            with open(os.path.join(folder, "libcuda.so.1"), "wb") as file:
                file.write(driver.replace(mark, mark.upper()))
            said = self.bus(LD_LIBRARY_PATH=folder)
            old = self.bus(LD_LIBRARY_PATH=folder, SIM_FAIL="cuMemAllocHost_v2:0:2")
        for kind in ("pageable", "pinned"):
            self.assertRegex(said[kind], rf"\A{kind} memory: [\d.]+ GB/s to device 0, [\d.]+ GB/s from it, "
                                         r"in copies of 64.00 MiB\Z")
        self.assertRegex(said["gain"], r"\ACOPY=auto[ ,]")
        self.assertRegex(said["moves"], r"\AOOM=page: to move a piece of 32.00 MiB takes \d+ us of copying and \d+ us of "
                                        r"mapping to the host, \d+ us and \d+ us to the device\Z")
        self.assertEqual(set(old), {"pageable", "pinned", "moves"}) # nothing to compare with

    def test_less_memory_than_wanted(self):
        said = self.bus(SIM_FAIL="cuMemAllocHost_v2:1:2")
        self.assertIn(" 4.00 MiB ", said["pageable"])
        self.assertIn(" 2.00 MiB ", said["pinned"])

    def test_refused(self):
        none = " memory: copies not measured: "
        for fails, pageable, pinned in (("cuMemAllocHost_v2:0:2", None, "CUDA_ERROR_OUT_OF_MEMORY"),
                                        ("cuMemAllocHost_v2:0:801", None, "CUDA_ERROR_NOT_SUPPORTED"),
                                        ("cuMemcpyHtoD_v2:2:999", "CUDA_ERROR_UNKNOWN", None),
                                        ("cuMemcpyHtoD_v2:0:4711", "error 4711", "error 4711")):
            said = self.bus(SIM_FAIL=fails)
            self.assertEqual(said["pageable"].partition(none)[2], pageable or "", fails)
            self.assertEqual(said["pinned"].partition(none)[2], pinned or "", fails)

    def test_pieces_that_do_not_move(self):
        none = "OOM=page: moving a piece of memory not measured: "
        for fails, why in (("cuMemCreate:2:801", "CUDA_ERROR_NOT_SUPPORTED"), ("cuMemMap:4:2", "CUDA_ERROR_OUT_OF_MEMORY"),
                           ("cuMemSetAccess:9:4711", "error 4711"), ("cuMemUnmap:12:1", "CUDA_ERROR_INVALID_VALUE")):
            self.assertEqual(self.bus(SIM_FAIL=fails)["moves"], none + why, fails)
        findings, whole = self.examine("--no-test")
        self.assertNotIn(("bus", "moves"), findings, whole)

    def test_no_context(self):
        said = self.bus(status=1, SIM_FAIL="cuDevicePrimaryCtxRetain:0:2")
        for kind in ("pageable", "pinned"):
            self.assertEqual(said[kind], kind + " memory: copies not measured: CUDA_ERROR_OUT_OF_MEMORY")


class SelfTest(DoctorTest):
    @unittest.skipIf(os.environ.get("TEST_PRELOAD"), "the sanitizer starts by a dlsym that the library is not ready for")
    def test_other_bytes(self):
        library = os.path.join(os.path.dirname(paths.command), "tests", "tools", "libcorrupting.so")
        findings, whole = self.examine(status=1, ALLOGRAFT_LIBRARY=library)
        texts = [f["text"] for f in whole["findings"] if f["section"] == "self-test"]
        self.assertEqual(len(texts), 5)
        for text in texts:
            self.assertIn("DIFFERENT BYTES" if "dlsym" in text else "nothing was redirected", text)

    def test_a_program_that_fails_natively(self):
        findings, _ = self.examine(status=1, SIM_FAIL="cuMemAlloc_v2:9:2")
        self.assertEqual(findings["self-test", "native"], "fail")

    def test_settings_do_not_disturb_it(self):
        self.examine(ALLOGRAFT_DISABLE="1", ALLOGRAFT_RULES="size>=1:native", ALLOGRAFT_GRAPH="all")
        with tempfile.NamedTemporaryFile("w+") as trace:
            trace.write("of another run")
            trace.flush()
            self.examine(ALLOGRAFT_LIMIT="256KiB", ALLOGRAFT_TRACE=trace.name)
            trace.seek(0)
            self.assertEqual(trace.read(), "of another run")


class Library(DoctorTest):
    def test_in_a_place_ld_preload_cannot_name(self):
        with tempfile.TemporaryDirectory(prefix="with space") as folder:
            there = shutil.copy(paths.library, os.path.join(folder, "liballograft.so"))
            findings, whole = self.examine(status=1, ALLOGRAFT_LIBRARY=there)
        self.assertEqual(findings["library", "found"], "fail")
        self.assertIn("LD_PRELOAD cannot name", whole["findings"][0]["text"])
        self.assertFalse([section for section, _ in findings if section == "self-test"])


class Words(DoctorTest):
    def test_bad_setting(self):
        result = allograft("doctor", "--no-test", env=environment(ALLOGRAFT_POLICY="pol"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 bad setting in", result.stdout)
        self.assertIn("ALLOGRAFT_POLICY=pol", result.stderr)

    def test_preload(self):
        findings, _ = self.examine("--no-test", status=3, LD_PRELOAD="libm.so.6")
        self.assertEqual(findings["environment", "preload"], "trap")

    def test_options(self):
        self.assert_refused(allograft("doctor", "--jsn"), "--jsn", "--json")
        self.assertIn("Exit status", allograft("doctor", "--help").stdout)


if __name__ == "__main__":
    command.main()
