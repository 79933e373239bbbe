"""The chemistry of the example: amides made of fragments, their shapes, and how well these fit a pharmacophore.

A molecule is known by its number. `screen(number)` is what workers run.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

from rdkit import Chem, RDConfig, RDLogger
from rdkit.Chem import AllChem, Crippen, Descriptors, Mol
from rdkit.Chem.ChemicalFeatures import BuildFeatureFactory

RDLogger.DisableLog('rdApp.*')

# what stands at the carbonyl group: a core, with a place for a substituent
ACIDS = ['c1ccc({})cc1', 'c1cccc({})c1', 'c1cncc({})c1', 'c1ccc({})nc1', 'c1cc({})sc1', 'c1cc({})oc1',
         'CCc1ccc({})cc1', 'C1CCN({})CC1', 'COc1cccc({})c1', 'c1cnn({})c1']
# and at the nitrogen
AMINES = ['Nc1ccc({})cc1', 'Nc1cccc({})c1', 'NCc1ccc({})cc1', 'NCCc1cccc({})c1', 'Nc1cncc({})c1', 'NCc1cc({})no1',
          'NC1CCC({})CC1', 'NCCCc1ccc({})cc1', 'N1CCN({})CC1', 'NCC1CCCN1{}']
SUBSTITUENTS = ['C', 'CC', 'C(C)C', 'CO', 'C(F)(F)F', 'CC#N', 'CC(N)=O', 'CCO', 'CS(C)(=O)=O', 'CN(C)C']

CONFORMERS, STEPS = 2, 100   # of each molecule, and of a minimisation
SEED = 20261

# features that a ligand needs, and how far they are from each other (in angstroms)
PHARMACOPHORE = ('Donor', 'Acceptor', 'Aromatic')
DISTANCES = {('Donor', 'Acceptor'): 4.6, ('Donor', 'Aromatic'): 5.4, ('Acceptor', 'Aromatic'): 3.7}
WIDTH = 1.0


class Hit(NamedTuple):
    """The result of screening a molecule; higher scores are better."""

    score: float
    number: int
    smiles: str
    weight: float
    lipophilicity: float


def library_size() -> int:
    """Return the number of molecules."""
    return len(ACIDS) * len(AMINES) * len(SUBSTITUENTS) ** 2


def smiles_of(number: int) -> str:
    """The molecule of that number."""
    number, left = divmod(number, len(SUBSTITUENTS))
    number, right = divmod(number, len(SUBSTITUENTS))
    acid, amine = divmod(number, len(AMINES))
    return f'O=C({ACIDS[acid].format(SUBSTITUENTS[left])}){AMINES[amine].format(SUBSTITUENTS[right])}'


def screen(number: int) -> Hit:
    """Give a molecule its shapes, and score them."""
    molecule = Chem.MolFromSmiles(smiles_of(number))
    shape, energies = shapes_of(molecule)
    fits = fits_of(shape)
    best = max((fit - strain(energy, energies) for fit, energy in zip(fits, energies, strict=True)), default=0.0)
    return Hit(round(best, 6), number, Chem.MolToSmiles(molecule), round(Descriptors.MolWt(molecule), 3),
               round(Crippen.MolLogP(molecule), 3))


def shapes_of(molecule: Mol) -> tuple[Mol, list[float]]:
    """The molecule with hydrogens and some minimised conformers, and their energies in kcal/mol."""
    full = Chem.AddHs(molecule)
    AllChem.EmbedMultipleConfs(full, CONFORMERS, randomSeed=SEED)
    energies = [energy for _, energy in AllChem.MMFFOptimizeMoleculeConfs(full, maxIters=STEPS)]
    return full, energies


def strain(energy: float, energies: list[float]) -> float:
    """What the score of a conformer loses because there is a better one: at most a half."""
    return 0.5 * (1 - math.exp(-(energy - min(energies)) / 10))


def fits_of(molecule: Mol) -> list[float]:
    """Return the fit of the best three features of each conformer to the pharmacophore: 1 if all distances match."""
    found: dict[str, list[Any]] = {family: [] for family in PHARMACOPHORE}
    for feature in features().GetFeaturesForMol(molecule):
        if feature.GetFamily() in found:
            found[feature.GetFamily()].append(feature)
    triples = list(product(*found.values()))
    return [max((fit([feature.GetPos(conformer) for feature in triple]) for triple in triples), default=0.0)
            for conformer in range(molecule.GetNumConformers())]


def fit(places: list[Any]) -> float:
    """Return how well the distances of three positions match those of the pharmacophore."""
    misfit = 0.0
    for (one, first), (other, second) in combinations(zip(PHARMACOPHORE, places, strict=True), 2):
        misfit += ((first.Distance(second) - DISTANCES[one, other]) / WIDTH) ** 2
    return math.exp(-misfit / 2)


@cache
def features() -> Any:
    """RDKit's definitions of donors, acceptors and the like; read once in each worker."""
    return BuildFeatureFactory(str(Path(RDConfig.RDDataDir) / 'BaseFeatures.fdef'))
