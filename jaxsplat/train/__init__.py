"""Training, from pure pieces (`make_train_step`) to the whole job (`train_capture`)."""

from jaxsplat._ffi import keep_freed_memory as keep_freed_memory
from jaxsplat.initialization import splats_from_points as splats_from_points
from jaxsplat.train.checkpoint import load_checkpoint as load_checkpoint
from jaxsplat.train.checkpoint import save_checkpoint as save_checkpoint
from jaxsplat.train.config import TrainConfig as TrainConfig
from jaxsplat.train.evaluate import Evaluation as Evaluation
from jaxsplat.train.evaluate import evaluate as evaluate
from jaxsplat.train.loop import make_train_steps as make_train_steps
from jaxsplat.train.loop import prepare as prepare
from jaxsplat.train.loop import train_steps as train_steps
from jaxsplat.train.loop import world_splats as world_splats
from jaxsplat.train.objective import Batch as Batch
from jaxsplat.train.render import make_renderer as make_renderer
from jaxsplat.train.render import render_splats as render_splats
from jaxsplat.train.run import train_capture as train_capture
from jaxsplat.train.state import TrainState as TrainState
from jaxsplat.train.state import init_state as init_state
from jaxsplat.train.state import with_rows as with_rows
from jaxsplat.train.step import Metrics as Metrics
from jaxsplat.train.step import make_room as make_room
from jaxsplat.train.step import make_train_step as make_train_step
