"""How the set of splats changes during training."""

from jaxsplat.strategy.mcmc import MCMC as MCMC
from jaxsplat.strategy.mcmc import Refined as Refined
from jaxsplat.strategy.mcmc import add_noise as add_noise
from jaxsplat.strategy.mcmc import refine as refine
from jaxsplat.strategy.mcmc import regularizer as regularizer
from jaxsplat.strategy.mcmc import relocated_values as relocated_values
