"""How the set of splats changes during training."""

from jaxsplat.strategy.base import Fixed as Fixed
from jaxsplat.strategy.default import Default as Default
from jaxsplat.strategy.default import Density as Density
from jaxsplat.strategy.mcmc import MCMC as MCMC
from jaxsplat.strategy.mcmc import add_noise as add_noise
from jaxsplat.strategy.mcmc import refine as refine
from jaxsplat.strategy.mcmc import regularizer as regularizer
from jaxsplat.strategy.mcmc import relocated_values as relocated_values
from jaxsplat.strategy.regularizers import Regularizers as Regularizers
from jaxsplat.strategy.regularizers import regularize as regularize
from jaxsplat.strategy.rows import Refined as Refined

Strategy = Fixed | Default | MCMC
