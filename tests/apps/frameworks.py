"""The frameworks whose own tests framework_tests.py runs, and which of their files: those of memory, streams and
launches, and of arrays that come and go."""

import glob
import os

HERE = os.path.dirname(os.path.abspath(__file__))

# Within tests/cupy_tests of a checkout: folders of which all files count, and files of cuda_tests.
CUPY_CUDA = """memory memory_hook pinned_memory stream graph device driver runtime compiler cublas cusolver cusparse
               cufft curand texture nvrtc""".split()
CUPY = [*(f"cuda_tests/test_{name}.py" for name in CUPY_CUDA), "core_tests", "creation_tests", "manipulation_tests",
        "indexing_tests", "sorting_tests", "statistics_tests", "math_tests"]

# Within the tests of a checkout of JAX.
JAX = """array array_interoperability buffer_callback python_callback memories mutable_array ffi clear_backends
         transfer_guard layout debugging_primitives random lax_numpy_indexing lax_control_flow fft sparse svd eigh ode
         optimizers image nn linalg""".split()

# Where a checkout has the tests.
TESTS_OF = {"cupy": "tests/cupy_tests", "rmm": "python/rmm/rmm/tests", "jax": "tests"}

# Within the installed package numba.cuda.tests.
NUMBA_FOLDERS = {
    "cudadrv": """cuda_memory deallocations cuda_ndarray cuda_driver events streams host_alloc managed_alloc pinned
                  array_attr cuda_array_slicing cuda_devicerecord context_stack emm_plugins reset_device select_device
                  cuda_auto_context module_callbacks linker inline_ptx profiler""",
    "cudapy": """array array_args array_methods array_reductions atomics complex constmem cooperative_groups
                 cuda_array_interface datetime device_array_capture device_func dispatcher forall gufunc intrinsics ipc
                 laplace localmem math matmul montecarlo multithreads print random record_dtype recursion reduction
                 retrieve_autoconverted_arrays sm stream_api sync transpose ufuncs vectorize vectorize_decor
                 warp_ops""",
    "nrt": "nrt nrt_refct",
}
NUMBA = [f"{folder}.test_{name}" for folder, names in NUMBA_FOLDERS.items() for name in names.split()]


class Suite:
    """Tests of a framework: {name of a file: how pytest is told it}, and what it needs for that."""

    def __init__(self, name, files, folder, words, environment):
        self.name, self.files, self.folder, self.words, self.environment = name, files, folder, words, environment


def cupy(checkout, scratch, sample):
    """The tests of a checkout on the installed CuPy, whose compiled kernels all runs share. A sample is the one that
    CuPy's own tests know how to take, a fifteenth, the same each time."""
    root = os.path.join(os.path.abspath(checkout), TESTS_OF["cupy"])
    files = {}
    for one in CUPY:
        path = os.path.join(root, one)
        inside = sorted(glob.glob(os.path.join(path, "test_*.py")), key=os.path.getsize, reverse=True)
        for file in [path] if os.path.isfile(path) else inside:
            files[os.path.relpath(file, root)] = file
    environment = {"CUPY_CACHE_DIR": os.path.join(scratch, "cupy")}
    if sample:
        environment.update(CUPY_TEST_RANDOM_SUBSAMPLE="1", _CUPY_TEST_SUBSAMPLE_SEED="1")
    return Suite("cupy", files, os.path.dirname(root), ["-m", "not slow and not multi_gpu"], environment)


def rmm(checkout):
    """The tests of a checkout, which import one another, on the RMM that is installed."""
    folder = os.path.join(os.path.abspath(checkout), TESTS_OF["rmm"])
    files = sorted(glob.glob(os.path.join(folder, "test_*.py")), key=os.path.getsize, reverse=True)
    named = {os.path.basename(file): file for file in files}
    named.pop("test_helpers.py", None)  # what they import
    return Suite("rmm", named, folder, [], {})


def jax(checkout, scratch):
    """The tests of a checkout on the JAX that is installed, hence none of its folders in sys.path. Each array is a
    cuMemAlloc and a cuMemFree; what XLA has compiled is shared by all runs (the first test of each file fails, which
    wants that there is no such cache after it if there was none)."""
    folder = os.path.join(os.path.abspath(checkout), TESTS_OF["jax"])
    names = [name for name in (f"{one}_test.py" for one in JAX) if os.path.exists(os.path.join(folder, name))]
    return Suite("jax", {name: os.path.join(folder, name) for name in names}, scratch, ["--import-mode=importlib"],
                 {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "JAX_NUM_GENERATED_CASES": "3",
                  "JAX_COMPILATION_CACHE_DIR": os.path.join(scratch, "jax"),
                  "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"})


def numba(scratch):
    """What the configuration of pytest in the sources of numba-cuda sets is not installed with its tests."""
    words = ["-p", "numba_plugin", "--rootdir", scratch, "-o", "consider_namespace_packages=true", "--pyargs"]
    return Suite("numba", {name: "numba.cuda.tests." + name for name in NUMBA}, scratch, words,
                 {"PYTHONPATH": os.pathsep.join(filter(None, [os.path.join(HERE, "numba_tests"),
                                                              os.environ.get("PYTHONPATH")]))})


def asked_for(options):
    """Of framework_tests.py's command line."""
    return [suite for suite in (
        options.cupy and cupy(options.cupy, options.scratch, options.sample), options.rmm and rmm(options.rmm),
        options.jax and jax(options.jax, options.scratch), options.numba and numba(options.scratch)) if suite]
