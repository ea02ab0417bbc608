"""Hidden states of chosen layers of a decoder model, with torch and transformers."""
import torch
from safetensors.torch import save_file
from transformers import AutoModel


class Extractor:
    """A model that runs up to the last chosen layer and keeps the outputs of the chosen ones."""

    def __init__(self, model, layers, dtype="bfloat16", device="cuda"):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        self.device = device
        self.model = AutoModel.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
        have = len(self.model.layers)
        if not layers or max(layers) >= have or min(layers) < 0:
            raise SystemExit(f"extract: the model has layers 0 to {have - 1}, asked for {layers}")
        # What comes after the last chosen layer changes nothing.
        self.model.layers = self.model.layers[: max(layers) + 1]
        self.model.config.num_hidden_layers = max(layers) + 1
        self.model.to(device)
        self.kept = {}
        for k in layers:
            self.model.layers[k].register_forward_hook(self.keeper(k))
        self.layers = layers

    def keeper(self, k):
        def keep(_module, _args, out):
            self.kept[k] = out[0] if isinstance(out, tuple) else out

        return keep

    @torch.inference_mode()
    def states(self, samples):
        """The states of each sample, [tokens, layers, hidden] on the CPU; None where one is not finite.

        Shorter samples are padded at their end. Attention is causal, so what
        follows a token does not reach it, and no mask is needed.
        """
        longest = max(len(s) for s in samples)
        ids = torch.zeros((len(samples), longest), dtype=torch.long)
        for row, s in enumerate(samples):
            ids[row, : len(s)] = torch.tensor(s, dtype=torch.long)
        self.model(input_ids=ids.to(self.device), use_cache=False)
        all_states = torch.stack([self.kept[k] for k in self.layers], dim=2)
        self.kept.clear()
        out = []
        finite = torch.isfinite(all_states).flatten(2).all(dim=2).cpu()
        on_cpu = all_states.cpu()
        for row, s in enumerate(samples):
            out.append(on_cpu[row, : len(s)].contiguous() if bool(finite[row, : len(s)].all()) else None)
        return out

    def save(self, path, sample, mask, states):
        """Writes one sample's tensors; the caller gives the file its name when it is whole."""
        tensors = {"input_ids": torch.tensor(sample, dtype=torch.int32), "hidden_states": states}
        if mask is not None:
            tensors["loss_mask"] = torch.tensor(mask, dtype=torch.uint8)
        save_file(tensors, path)
