"""The programs of suite.py: name -> what is run. They are not here; recipes.py says where they come from.

`lists` says what each is chosen for; one may be in several:
  a  allocates and frees in its loops, by itself or through Thrust
  b  bound by launches: 10,000 and more of short kernels
  c  fewer than 2,000 operations in all
  d  creates and destroys streams or events in a loop
  e  bound by copies
  h  copies many MiB from and to ordinary memory of the host
  p  of Python: measured as children of one process that has imported `imports`
The arguments make each take some tenths of a second to a second on one H200, and keep what the host computes for
comparison short. `reads` are files and folders it needs, `noise` is added to that of the recipe. With the arguments
`pressed` instead it needs hundreds of MiB of the device and more: pressed.py runs those that have them.
"""


def hecbench(*rows):
    """Rows of program, lists, arguments, and what else there is to say."""
    return {"hecbench/" + name: {"lists": lists, "arguments": arguments, **dict(*more)}
            for name, lists, arguments, *more in rows}


def others(recipe, *rows):
    return {f"{recipe}/{name}": {"lists": lists, "arguments": arguments, **dict(*more)}
            for name, lists, arguments, *more in rows}


def cloverleaf(*decks):
    return {"cloverleaf/" + deck: {"lists": "ab", "arguments": f"--file InputDecks/{deck} --out /dev/null",
                                   "reads": ["InputDecks/" + deck], **more} for deck, more in decks}


# One parent serves all of PyTorch. torch_geometric (by its pyg_lib) and OpenMM begin with CUDA when they are imported, so
# that each child does it for itself; and numba_bodies gives NumPy a name before it imports numba.
STEPS = {"noise": ["^stepping took"], "timer": "stepping took ([0-9.]+) s"}
TORCH = {"imports": ["torch", "transformers", "gpytorch"], **STEPS}
OPENMM = {"imports": ["numpy"], "reads": ["openmm_steps.py"], **STEPS}

PROGRAMS = {
    "hypre-ij": {"lists": "a",
                 "arguments": "-n 96 96 96 -pmis -keepT 1 -rlx 18 -exec_device -rap 1 -mod_rap2 1 -solver 1"},
    "ggml-ops": {"lists": "a",
                 "arguments": "test -b CUDA0 -o SET_ROWS,RMS_NORM,NORM,SOFT_MAX,ARGSORT,SUM_ROWS,PAD"},
    **cloverleaf(("clover_bm_short.in", {}),
                 ("clover_bm4_short.in", {"pressed": "--file InputDecks/clover_bm4_short.in --out /dev/null"})),
    **hecbench(
        # allocations
        ("determinant", "ab", "8000"),
        ("moe-align", "ab", "500"),
        ("ssim", "ab", ""),
        ("remap", "ab", "10000 300"),
        ("aobench", "a", "1000"),
        ("divergence", "a", "input.txt 4000", {"reads": ["input.txt"]}),
        ("minmax", "a", "100 1000"),
        ("segment-reduce", "ab", "4 500"),
        ("kurtosis", "a", "100000 2000"),
        ("nosync", "ab", "100000 1500"),
        ("topk", "a", "16 300"),
        ("sortKV", "a", "1000 200"),
        ("scan3", "a", "3000 4096"),
        ("mtf", "ab", "1024 5"),
        ("nonzero", "ab", "64 64 300"),
        ("ccsd-trpdrv", "a", "16 64 300"),
        ("collision", "a", "100"),
        ("mallocFree", "a", "1048576"),
        # launches
        ("kernelLaunch", "b", "20000"),
        ("heat", "b", "256 100000"),
        ("stencil1d", "b", "65536 100000", {"pressed": "268435456 20"}),
        ("langevin", "b", "65536 30000"),
        ("laplace3d", "b", "64 64 64 80000 0", {"pressed": "640 640 640 20 0"}),
        ("particles", "b", "5000"),
        ("kalman", "b", "10 10 3 2500"),
        ("nw", "b", "2048 10 60"),
        ("floydwarshall", "b", "256 200 16"),
        ("pso", "b", "30 10000"),
        ("d3q19-bgk", "b", "16"),
        ("srad", "b", "5000 0.5 502 458", {"reads": ["../data/srad/image.pgm"]}),
        ("iso2dfd", "b", "64 64 40000"),
        ("lif", "b", "32 4 60000"),
        ("reaction", "b", "3000"),
        ("burger", "b", "32 32 20000"),
        ("adamw", "b", "100 20000"),
        ("metropolis", "b", "-l 32 11 -t 4.7 0.1 -a 10 2 20 10 -h 1.0 -z 7919"),
        ("pathfinder", "b", "200 30000 1"),
        ("pitch", "b", "1000"),
        ("split", "b", "65536 20000"),
        ("entropy", "b", "64 64 20000"),
        ("relu", "b", "1000 15000"),
        ("softmax", "b", "100 16 1 40000"),
        ("nlll", "b", "64 10 5000"),
        ("rodrigues", "b", "1000 30000"),
        ("s3d", "b", "-q -n 300 -s 1"),
        ("eigenvalue", "be", "512 5000"),
        ("lulesh", "b", "-s 16 -i 500"),
        ("fma", "b", "64 64 64 64 3000"),
        ("jacobi", "b", ""),
        ("lid-driven-cavity", "b", ""),
        # few operations
        ("lud", "c", "-s 2048"),
        ("gaussian", "c", "-q -t -s 512"),
        ("crc64", "c", "2 2 65536"),
        ("rushlarsen", "c", "5 20000"),
        ("bitonic-sort", "c", "12 2"),
        ("myocyte", "c", "10"),
        ("backprop", "c", "65536"),
        ("tissue", "c", "8 500"),
        ("fluidSim", "c", "20"),
        ("tridiagonal", "c", "--vec4 -num_systems=512"),
        # streams, events and copies
        ("triad", "de", "--passes 1"),
        ("lfib4", "d", "2000000"),
        ("histogram", "d", "--i=100"),
        ("logan", "d", "inputs/example.txt 17 21 1", {"reads": ["inputs/example.txt"]}),
        ("concurrentKernels", "d", "4"),
        ("memcpy", "eh", "300"),
        ("streamCreateCopyDestroy", "ade", ""),
        # ordinary memory of the host
        ("matrixT", "h", "4096 4096 1"),
        ("geam", "h", "4096 4096 1"),
        ("hwt1d", "h", "8388608 20"),
        ("fwt", "h", "20"),
        ("debayer", "h", "8192 8192 1"),
        ("maxpool3d", "h", "2048 2048 8 1"),
        ("f8cast", "h", "33554432 1"),
        ("reverse2D", "h", "8192 8192 1"),
        ("adjacent", "h", "33554432 1"),
        ("vadd", "h", "4096 8192 1", {"noise": ["^(base|vectorized|tv_layout) "]}),
        ("blas-dot", "h", "67108864 1"),
        ("hypterm", "h", "30", {"pressed": "10"}),
        ("slit", "h", "1024 300"),
        ("scatter", "h", "4000000 100"),
        ("openmp", "h", "100", {"noise": ["^number of host CPUs"]}),
    ),
    **others(
        "cuda-samples",
        ("0_Introduction/mergeSort", "c", ""),
        ("0_Introduction/vectorAdd", "c", ""),
        ("0_Introduction/simpleStreams", "de", "", {"noise": ["^(memcopy|kernel|non-streamed|4 streams):"]}),
        ("0_Introduction/simpleMultiCopy", "de", ""),
        ("0_Introduction/asyncAPI", "ce", ""),
        ("2_Concepts_and_Techniques/segmentationTreeThrust", "a", "",
         {"reads": ["data/test.ppm", "data/ref_00.ppm", "data/ref_09.ppm"]}),
        ("2_Concepts_and_Techniques/radixSortThrust", "a", ""),
    ),
    **others(
        "python",
        ("torch_uncached", "p", "", TORCH),
        ("transformers_generate", "p", "", TORCH),
        ("geometric_graphs", "p", "", TORCH),
        ("gpytorch_regression", "p", "", TORCH),
        ("torch_graphed", "p", "4 256", {"pressed": "16 4096", **TORCH}),
        ("transformers_large", "p", "2 256", {"pressed": "16 2048", **TORCH}),
        ("cupy_heat", "p", "", {"imports": ["cupy"], **STEPS}),
        ("cupy_waves", "p", "256", {"pressed": "12288", "imports": ["cupy"], **STEPS}),
        ("numba_bodies", "p", "", {"imports": ["numpy"], **STEPS}),
        ("diffrax_orbits", "p", "", {"imports": ["jax", "diffrax"]}),
        ("jax_training", "p", "4 256 0", {"pressed": "16 4096 0", **STEPS}),
        ("jax_preallocated", "p", "4 256 1", {"pressed": "16 4096 6", "reads": ["jax_training.py"], **STEPS}),
        ("openmm_gbsa", "p", "", OPENMM),
        ("openmm_pme", "p", "", OPENMM),
    ),
    **others(
        "thrust",
        ("word_count", "c", ""),
        ("bucket_sort2d", "c", ""),
    ),
}
