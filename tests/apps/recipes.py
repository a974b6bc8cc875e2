"""Public programs that apps.py can build and run. The sources are not here: each is built in a checkout of its own.

A recipe has
  source   where it comes from
  build    commands of a shell, in the checkout; {arch} is the architecture, as sm_90
  run      the command that is measured, as a shell would expand it; {program} is what follows the recipe's name:
           hecbench/adam
  folder   where it is run, within the checkout
  noise    what differs from run to run in the output: the lines in which one of these is found are not compared
  files    output files that are compared as well
  oracle   what the program says when its own check has passed
  timer    what the program says of its own time, as a group; all that are found are added up
  binary   what is built, within the folder, where suite.py is to carry it elsewhere
"""

TIMES = (r"(?i:time|took|elapsed|second|\([mun]?s\)|\b[0-9.]+ ?[mun]?s\b|bandwidth|[GM]i?B/s|flop|throughput|speed|"
         r"wall clock)")

# The first number after "time", or after its colon, unless it is that of the host's reference.
OWN_TIMER = (r"(?im)^(?!.*(?:cpu|host|reference|serial)).*?\btime\b(?:[^\n:=]*[:=])?[^\n0-9]*?"
             r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)")

RECIPES = {
    # Allocates its temporaries anew in each step, reduces, and copies back.
    "cloverleaf": {
        "source": "github.com/UoB-HPC/CloverLeaf",
        "build": ["cmake -S . -B build-app -DMODEL=cuda -DENABLE_MPI=OFF -DCUDA_ARCH={arch} "
                  "-DCMAKE_CUDA_COMPILER=$(command -v nvcc)", "cmake --build build-app -j"],
        "run": "build-app/cuda-cloverleaf --file InputDecks/{program} --out /dev/null",
        "program": "clover_bm2_short.in",
        "noise": [TIMES, "Percentage", r"^ \S.*:[0-9.]+ [0-9.]+$"],
        "oracle": "This test is considered PASSED",
        "timer": r"Wall clock ([0-9.e+-]+)(?!.*Wall clock)",
        "binary": "build-app/cuda-cloverleaf",
    },
    # Algebraic multigrid, with hypre's own pool off, as it is unless configured in.
    "hypre-ij": {
        "source": "github.com/hypre-space/hypre",
        "build": ["cd src && ./configure --without-MPI --without-umpire --with-cuda "
                  "--with-gpu-arch=$(echo {arch} | tr -d sm_)",
                  "make -C src -j", "make -C src/test ij"],
        "folder": "src/test",
        "run": "./ij -n 96 96 96 -pmis -keepT 1 -rlx 18 -exec_device -rap 1 -mod_rap2 1 -solver 1",
        "noise": [TIMES, "(?i:memory|wall)"],
        "oracle": r"Final Relative Residual Norm = [0-9.]+e-(0[89]|[1-9])",
        "timer": r"wall clock time = +([0-9.]+)",
        "binary": "ij",
    },
    # ggml's tests of its operations, of which each allocates its tensors, computes, and compares with the CPU's result. The
    # data are random each time.
    "ggml-ops": {
        "source": "github.com/ggml-org/ggml",
        "build": ["cmake -S . -B build-app -DGGML_CUDA=ON -DGGML_CUDA_FA=OFF -DGGML_OPENMP=OFF -DGGML_NATIVE=OFF "
                  "-DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DBUILD_SHARED_LIBS=OFF -DGGML_BUILD_EXAMPLES=OFF "
                  "-DCMAKE_CUDA_ARCHITECTURES=$(echo {arch} | tr -d sm_) -DCMAKE_BUILD_TYPE=Release "
                  "-DCMAKE_CUDA_COMPILER=$(command -v nvcc)",
                  "cmake --build build-app -j --target test-backend-ops"],
        "run": "build-app/bin/test-backend-ops test -b CUDA0 -o {program}",
        "program": "ADD,MUL,DIV,CPY,CONT,GET_ROWS,SET_ROWS,NORM,RMS_NORM,SOFT_MAX,ROPE,ARGSORT,CONCAT,IM2COL",
        "noise": ["(?i:memory|device)"],
        "oracle": r"(\d+)/\1 tests passed",
        "binary": "build-app/bin/test-backend-ops",
    },
    # Some 500 small programs: hecbench/NAME.
    "hecbench": {
        "source": "github.com/zjin-lcf/HeCBench",
        "build": ["make -C src/{program}-cuda ARCH={arch}"],
        "folder": "src/{program}-cuda",
        "run": "$(make -n run | tail -n 1)",
        "noise": [TIMES],
        "timer": OWN_TIMER,
        "binary": "main",
    },
    # NVIDIA's own: cuda-samples/0_Introduction/mergeSort.
    "cuda-samples": {
        "source": "github.com/NVIDIA/cuda-samples",
        "build": ["cd Samples/{program} && nvcc -w -O2 -std=c++17 -arch={arch} -I../../../Common "
                  "$(ls *.cu *.cpp 2>/dev/null) -o app"],
        "folder": "Samples/{program}",
        "run": "./app",
        "noise": [TIMES],
        "timer": OWN_TIMER,
        "binary": "app",
    },
    # The examples of Thrust, built with the Thrust of the toolkit: thrust/sum_rows.
    "thrust": {
        "source": "github.com/NVIDIA/cccl",
        "build": ["cd thrust/examples && nvcc -w -O2 -std=c++17 --extended-lambda -arch={arch} -I. {program}.cu "
                  "-o {program}.app"],
        "folder": "thrust/examples",
        "run": "./{program}.app",
        "noise": [TIMES],
        "binary": "{program}.app",
    },
    # Programs of Python, in tests/apps/python: whichever of the frameworks are installed where they run.
    "python": {
        "source": "tests/apps/python",
        "build": ["test -f {program}.py"],
        "run": "./{program}.py",
        "binary": "{program}.py",
    },
    # What a launch costs through Kokkos. 4.6 and earlier do not compile with CUDA 13, where cudaGraphAddDependencies and
    # cudaMemPrefetchAsync take other arguments.
    "kokkos-launch": {
        "source": "github.com/kokkos/kokkos",
        "build": ["cmake -S . -B build-app -DKokkos_ENABLE_CUDA=ON -DKokkos_ARCH_HOPPER90=ON -DKokkos_ENABLE_BENCHMARKS=ON "
                  "-DCMAKE_BUILD_TYPE=Release", "cmake --build build-app -j --target Kokkos_launch_latency"],
        "run": "$(find build-app -name '*launch_latency*' -type f -perm -u+x | head -n 1) -m 10000",
        "noise": [".*"],
        "oracle": "parallel",
    },
    # Molecular dynamics with Lennard-Jones forces.
    "lammps-lj": {
        "source": "github.com/lammps/lammps",
        "build": ["cmake -S cmake -B build-app -DPKG_KOKKOS=ON -DKokkos_ENABLE_CUDA=ON -DKokkos_ARCH_HOPPER90=ON "
                  "-DBUILD_MPI=OFF -DCMAKE_BUILD_TYPE=Release", "cmake --build build-app -j"],
        "folder": "bench",
        "run": "../build-app/lmp -in in.lj -k on g 1 -sf kk -pk kokkos neigh half -log none",
        "noise": [TIMES, r"(?i:tau/day|performance|\|.*\|)", "(?i:loop|memory|cpu|mpi)"],
        "timer": r"Loop time of ([0-9.]+)",
    },
}
