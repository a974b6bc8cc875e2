"""How openmm_gbsa.py and openmm_pme.py step. Importing it ends them with 77 where OpenMM is missing."""
import os
import sys
import time
import zlib

try:
    import openmm
    from openmm import app, unit
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

STRUCTURE = os.path.join(os.path.dirname(app.__file__), "data", "test.pdb")  # a protein of 35 residues in water
REPORTS = 20


def platform_named(name):
    try:
        return openmm.Platform.getPlatformByName(name)
    except openmm.OpenMMException as missing:
        print(missing, *openmm.Platform.getPluginLoadFailures(), sep="\n", file=sys.stderr)
        sys.exit(77)


def report(simulation):
    """Energies have a line of their own: only forces are promised to be the same bits in each run."""
    state = simulation.context.getState(getEnergy=True, getPositions=True)
    places = state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)
    potential, kinetic = (energy.value_in_unit(unit.kilojoule_per_mole)
                          for energy in (state.getPotentialEnergy(), state.getKineticEnergy()))
    step = simulation.currentStep
    print(step, "energies", float(potential).hex(), float(kinetic).hex())
    print(step, "positions", float(places.sum()).hex(), f"{zlib.crc32(places.tobytes()):08x}")


def run(topology, system, positions, n_steps):
    """The program's arguments may name another platform than CUDA, and another number of steps."""
    words = sys.argv[1:]
    platform = platform_named(words[0] if words else "CUDA")
    n_steps = int(words[1]) if len(words) > 1 else n_steps
    wanted = {"Precision": "mixed", "DeterministicForces": "true"}
    integrator = openmm.LangevinMiddleIntegrator(300 * unit.kelvin, 1 / unit.picosecond, 2 * unit.femtosecond)
    integrator.setRandomNumberSeed(1)
    simulation = app.Simulation(topology, system, integrator, platform,
                                {name: wanted[name] for name in platform.getPropertyNames() if name in wanted})
    simulation.context.setPositions(positions)
    simulation.context.setVelocitiesToTemperature(300 * unit.kelvin, 2)
    report(simulation)
    begun = time.perf_counter()
    for _ in range(REPORTS):
        simulation.step(max(n_steps // REPORTS, 1))
        report(simulation)
    print(f"stepping took {time.perf_counter() - begun:.4f} s")
