#!/usr/bin/env python3
"""A small protein in a box of water with OpenMM: particle-mesh Ewald on a stream of its own, lists of neighbours."""
import openmm_steps
from openmm import app, unit


def main():
    read = app.PDBFile(openmm_steps.STRUCTURE)
    field = app.ForceField("amber14-all.xml", "amber14/tip3p.xml")
    system = field.createSystem(read.topology, nonbondedMethod=app.PME, nonbondedCutoff=0.9 * unit.nanometer,
                                constraints=app.HBonds)
    openmm_steps.run(read.topology, system, read.positions, 10000)


main()
