"""One thread for torch: more threads than idle cores make every small operation wait for the scheduler."""

import torch

torch.set_num_threads(1)
