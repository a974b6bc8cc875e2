#!/usr/bin/env python3
"""A small protein in implicit water with OpenMM: short kernels, a dozen or so for each step."""
import openmm_steps
from openmm import app


def main():
    read = app.PDBFile(openmm_steps.STRUCTURE)
    model = app.Modeller(read.topology, read.positions)
    model.delete([residue for residue in model.topology.residues() if residue.name in ("HOH", "Cl")])
    field = app.ForceField("amber99sb.xml", "amber99_obc.xml")
    system = field.createSystem(model.topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds)
    openmm_steps.run(model.topology, system, model.positions, 20000)


main()
