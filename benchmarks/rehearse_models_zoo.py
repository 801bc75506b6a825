"""The architectures of ``rehearse_models.py``: how each is built small, and what one batch of it is."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

PACKAGES = ("torchvision", "timm", "transformers", "torch_geometric")
CLASSES = 10
VOCABULARY = 64


@dataclass
class Example:
    """One batch: ``tensors`` by name (``labels`` among them), how the loss is made, and the input to leave behind."""

    tensors: dict[str, torch.Tensor]
    call: Callable[[Any, dict[str, torch.Tensor]], torch.Tensor]
    left: str

    def loss(self, model: Any) -> torch.Tensor:
        """The loss of ``model`` on this batch, a scalar."""
        return self.call(model, self.tensors)

    def to(self, device: str, but: str = "") -> Example:
        """The batch on ``device``, all but the tensor called ``but``."""
        return replace(
            self, tensors={name: value if name == but else value.to(device) for name, value in self.tensors.items()}
        )


Build = Callable[[], tuple[torch.nn.Module, Example]]


def images(size: int, count: int = 2) -> Example:
    """Images (``count``, 3, ``size``, ``size``) with one class each."""

    def call(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        output = model(batch["images"])
        if isinstance(output, dict):  # segmentation: class scores of each pixel
            labels = batch["labels"][:, None, None].expand(-1, *output["out"].shape[2:])
            return F.cross_entropy(output["out"], labels)
        if isinstance(output, tuple):
            output = output[0]
        return F.cross_entropy(getattr(output, "logits", output), batch["labels"])

    return Example(
        {"images": torch.randn(count, 3, size, size), "labels": torch.randint(0, CLASSES, (count,))}, call, "images"
    )


def torchvision_cases() -> dict[str, Build]:
    """Classification, segmentation and detection backbones of torchvision."""
    models = importlib.import_module("torchvision.models")

    def of(name: str, size: int, **options: Any) -> Build:
        return lambda: (models.get_model(name, weights=None, num_classes=CLASSES, **options), images(size))

    return {
        "resnet18": of("resnet18", 32),
        "mobilenet_v2": of("mobilenet_v2", 32),
        "mobilenet_v3_small": of("mobilenet_v3_small", 32),
        "squeezenet1_1": of("squeezenet1_1", 64),
        "shufflenet_v2_x0_5": of("shufflenet_v2_x0_5", 32),
        "mnasnet0_5": of("mnasnet0_5", 32),
        "googlenet": of("googlenet", 64, aux_logits=False, init_weights=False),
        "lraspp_mobilenet_v3": of("lraspp_mobilenet_v3_large", 64, weights_backbone=None),
    }


def timm_cases() -> dict[str, Build]:
    """Convolutional, attention and mixer models of timm."""
    timm = importlib.import_module("timm")

    def of(name: str, size: int, **options: Any) -> Build:
        return lambda: (timm.create_model(name, num_classes=CLASSES, **options), images(size))

    vit = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
    return {
        "resnet10t": of("resnet10t", 32),
        "convnext_atto": of("convnext_atto", 32, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
        "efficientnet_lite0": of("efficientnet_lite0", 32),
        "regnetx_002": of("regnetx_002", 32),
        "ghostnet_050": of("ghostnet_050", 32),
        "vit": of("vit_tiny_patch16_224", 32, **vit),
        "deit_distilled": of("deit_tiny_distilled_patch16_224", 32, **vit),
        "beit": of("beit_base_patch16_224", 32, **vit),
        "eva02": of("eva02_tiny_patch14_224", 32, **vit),
        "swin": of("swin_tiny_patch4_window7_224", 56, img_size=56, embed_dim=16, depths=(2, 1), num_heads=(2, 2)),
        "mixer": of("mixer_s32_224", 32, img_size=32),
        "resmlp": of("resmlp_12_224", 32, img_size=32),
        "poolformer": of("poolformer_s12", 32),
    }


def sentences(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two sentences of 12 tokens, the second with 4 of padding."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    return {"input_ids": torch.randint(3, VOCABULARY, (2, 12)), "attention_mask": mask, **more}


def head_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Cross entropy of the model's logits and the labels, by hand."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**inputs).logits
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch["labels"].reshape(-1))


def own_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss that the model works out itself."""
    return model(**batch).loss


def transformers_cases() -> dict[str, Build]:
    """Encoder, decoder, encoder-decoder, vision and speech models of transformers."""
    hf = importlib.import_module("transformers")
    small = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip

    def of(model: str, config: str, kind: str, loss: Any = head_loss, left: str = "input_ids", **options: Any) -> Build:
        def build() -> tuple[torch.nn.Module, Example]:
            made = getattr(hf, model)(getattr(hf, config)(**options))
            if kind == "tokens":
                tensors = sentences(labels=torch.randint(0, VOCABULARY, (2, 12)))
            elif kind == "class":
                tensors = sentences(labels=torch.randint(0, 2, (2,)))
            elif kind == "images":
                tensors = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 2, (2,))}
            else:
                tensors = {"input_values": torch.randn(2, 800), "labels": torch.randint(0, 2, (2,))}
            return made, Example(tensors, loss, left)

        return build

    decoder = {**small, "num_key_value_heads": 1}
    t5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2,
          "decoder_start_token_id": 0, "pad_token_id": 0}  # fmt: skip
    bart = {"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "pad_token_id": 1,
            "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "max_position_embeddings": 64, "forced_eos_token_id": None}  # fmt: skip
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
              "image_size": 32, "patch_size": 8, "num_labels": 2}  # fmt: skip
    return {
        "bert": of("BertForSequenceClassification", "BertConfig", "class", left="attention_mask", **small),
        "roberta": of("RobertaForMaskedLM", "RobertaConfig", "tokens", own_loss, **{**small, "pad_token_id": 1}),
        "distilbert": of("DistilBertForSequenceClassification", "DistilBertConfig", "class", vocab_size=VOCABULARY,
                         dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=64),
        "electra": of("ElectraForSequenceClassification", "ElectraConfig", "class", embedding_size=32, **small),
        "deberta_v2": of("DebertaV2ForSequenceClassification", "DebertaV2Config", "class", relative_attention=True,
                         pos_att_type=["p2c", "c2p"], **small),
        "gpt2": of("GPT2LMHeadModel", "GPT2Config", "tokens", own_loss, vocab_size=VOCABULARY, n_embd=32, n_layer=2,
                   n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2),
        "llama": of("LlamaForCausalLM", "LlamaConfig", "tokens", **decoder),
        "qwen2": of("Qwen2ForCausalLM", "Qwen2Config", "tokens", own_loss, **decoder),
        "mixtral": of("MixtralForCausalLM", "MixtralConfig", "tokens", num_local_experts=2, **decoder),
        "mamba": of("MambaForCausalLM", "MambaConfig", "tokens", vocab_size=VOCABULARY, hidden_size=32,
                    num_hidden_layers=2, state_size=8, pad_token_id=0),
        "t5": of("T5ForConditionalGeneration", "T5Config", "tokens", own_loss, **t5),
        "bart": of("BartForConditionalGeneration", "BartConfig", "tokens", own_loss, **bart),
        "hf_vit": of("ViTForImageClassification", "ViTConfig", "images", left="pixel_values", **vision),
        "wav2vec2": of("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", "sound", left="input_values",
                       hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                       conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 8), num_conv_pos_embeddings=8,
                       num_conv_pos_embedding_groups=2, num_feat_extract_layers=2, mask_time_prob=0.0, num_labels=2),
    }  # fmt: skip


class GraphClassifier(torch.nn.Module):
    """Graph layers, a mean over each graph, and a linear head; a normalisation constant as a buffer."""

    def __init__(self, layers: torch.nn.Module, pool: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layers = layers
        self.pool = pool
        self.head = torch.nn.Linear(16, CLASSES)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """Class scores (graphs, CLASSES)."""
        return self.head(self.pool(self.layers(x - self.mean, edge_index), batch))


def graph_cases() -> dict[str, Build]:
    """Message-passing models of torch_geometric, on three graphs in one batch."""
    nn = importlib.import_module("torch_geometric.nn")

    def graphs() -> Example:
        def call(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return F.cross_entropy(model(batch["x"], batch["edge_index"], batch["batch"]), batch["labels"])

        tensors = {
            "x": torch.randn(30, 8),
            "edge_index": torch.randint(0, 10, (2, 90)) + 10 * (torch.arange(90) // 30),
            "batch": torch.arange(30) // 10,
            "labels": torch.randint(0, CLASSES, (3,)),
        }
        return Example(tensors, call, "edge_index")

    def of(name: str, **options: Any) -> Build:
        def build() -> tuple[torch.nn.Module, Example]:
            layers = getattr(nn, name)(in_channels=8, hidden_channels=16, num_layers=2, out_channels=16, **options)
            return GraphClassifier(layers, nn.global_mean_pool), graphs()

        return build

    def conv(name: str, **options: Any) -> Build:
        return lambda: (GraphClassifier(getattr(nn, name)(8, 16, **options), nn.global_max_pool), graphs())

    return {
        "GCN": of("GCN", norm="batch_norm"),
        "GAT": of("GAT", heads=2, dropout=0.2),
        "GraphSAGE": of("GraphSAGE", dropout=0.2),
        "GIN": of("GIN", norm="layer_norm"),
        "EdgeCNN": of("EdgeCNN"),
        "TransformerConv": conv("TransformerConv"),
        "ChebConv": conv("ChebConv", K=3),
        "GATv2Conv": conv("GATv2Conv"),
        "ResGatedGraphConv": conv("ResGatedGraphConv"),
    }


_CASES = {
    "torchvision": torchvision_cases,
    "timm": timm_cases,
    "transformers": transformers_cases,
    "torch_geometric": graph_cases,
}


def without_compiled_operators() -> None:
    """Let torchvision load beside a torch that its compiled operators weren't built for: models need none of them."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for part in ("_meta_registrations", "_autograd_registrations"):
            sys.modules[f"torchvision.{part}"] = types.ModuleType(f"torchvision.{part}")
        importlib.import_module("torchvision")


def cases(packages: Sequence[str]) -> tuple[dict[str, Build], list[str]]:
    """Architectures by name (``package/name``), and a sentence for each package that can't be imported."""
    found: dict[str, Build] = {}
    missing: list[str] = []
    if {"torchvision", "timm"} & set(packages):
        without_compiled_operators()  # timm imports it too
    for package in packages:
        try:
            made = _CASES[package]()
        except ImportError as error:
            missing.append(f"{package}: {error} (pip install {package})")
            continue
        found |= {f"{package}/{name}": build for name, build in made.items()}
    return found, missing
