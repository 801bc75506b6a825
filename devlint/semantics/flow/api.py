"""What the interpreter knows of torch, as data."""

from __future__ import annotations

import re

FACTORIES = frozenset(
    f"torch.{name}"
    for name in "zeros ones empty full arange linspace logspace eye rand randn randint randperm tensor as_tensor range "
    "tril_indices triu_indices hann_window hamming_window blackman_window bartlett_window kaiser_window".split()
)
"""Make a tensor on the default device, or on `device=`."""
CPU_CONSTRUCTORS = frozenset(
    (
        "torch.from_numpy",
        "torch.Tensor",
        "torch.FloatTensor",
        "torch.LongTensor",
        "torch.IntTensor",
        "torch.DoubleTensor",
        "torch.BoolTensor",
        "torch.ByteTensor",
        "torch.HalfTensor",
        "torch.frombuffer",
    )
)
"""Make a tensor on the CPU, whatever the default device is."""
LIKE = frozenset(f"torch.{name}_like" for name in "zeros ones empty full rand randn randint".split())
"""Make a tensor where their first argument is, or on `device=`."""
NEW = frozenset("new_zeros new_ones new_empty new_full new_tensor".split())
"""Methods that make a tensor where their receiver is, or on `device=`."""
COMBINE = frozenset(
    f"torch.{name}"
    for name in "add sub mul div matmul mm bmm addmm baddbmm addbmm dot mv outer where maximum minimum max min pow atan2 "
    "fmod remainder eq ne lt le gt ge logical_and logical_or bitwise_and bitwise_or dist cdist cross kron einsum "
    "tensordot lerp gather index_select masked_select scatter scatter_add take take_along_dim bucketize searchsorted "
    "isin equal allclose stft istft cat stack hstack vstack dstack concat concatenate cartesian_prod".split()
)
"""Functions whose tensor arguments must share a device."""
HOST_RESULTS = frozenset(
    f"torch.{name}"
    for name in "numel is_tensor is_floating_point is_complex is_nonzero is_same_size get_device result_type typename".split()
)
"""Functions of tensors whose result is a number, a truth value or a dtype."""
JOINS = frozenset(f"torch.{name}" for name in "cat concat concatenate stack hstack vstack dstack".split())
"""Functions that check the devices even of tensors without elements."""
DISTRIBUTIONS = "torch.distributions."
"""Distributions draw where their parameters are."""
FUNCTIONAL = "torch.nn.functional."
LOSSES = frozenset(
    f"torch.nn.functional.{name}"
    for name in "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div "
    "binary_cross_entropy_with_logits poisson_nll_loss gaussian_nll_loss margin_ranking_loss hinge_embedding_loss "
    "cosine_embedding_loss triplet_margin_loss multi_margin_loss multilabel_margin_loss soft_margin_loss "
    "multilabel_soft_margin_loss cosine_similarity pairwise_distance embedding".split()
)
LOSS_CLASSES = frozenset(
    f"torch.nn.{name}"
    for name in "CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss "
    "PoissonNLLLoss GaussianNLLLoss MarginRankingLoss HingeEmbeddingLoss CosineEmbeddingLoss TripletMarginLoss "
    "MultiMarginLoss MultiLabelMarginLoss SoftMarginLoss MultiLabelSoftMarginLoss".split()
)
PARAMETRIC = frozenset(
    f"torch.nn.{name}"
    for name in "Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d "
    "BatchNorm2d BatchNorm3d SyncBatchNorm GroupNorm LayerNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d Embedding "
    "EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer TransformerEncoder TransformerDecoder "
    "TransformerEncoderLayer TransformerDecoderLayer MultiheadAttention PReLU LazyLinear LazyConv1d LazyConv2d".split()
)
"""Modules that surely hold parameters or buffers."""
LIBRARY_MODULES = re.compile(
    r"torchvision\.models\.(?!feature_extraction|get_|list_)[\w.]*\w|timm\.create_model|"
    r"transformers\.(?:\w+Model|\w+For\w+)\.from_pretrained|segmentation_models_pytorch\.(?!losses|utils|metrics)\w+|"
    r"efficientnet_pytorch\.EfficientNet\.from_\w+"
)
"""Functions and classes of other libraries that make a module with parameters, on the CPU."""
CONTAINERS = frozenset(("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"))
SEVERAL = frozenset(f"torch.{name}" for name in "meshgrid split chunk unbind sort topk tensor_split nonzero".split())
"""Functions that return several tensors, all where their arguments are."""
COMBINE_METHODS = frozenset(
    "add add_ sub sub_ mul mul_ div div_ matmul mm bmm mv dot addmm baddbmm where gather scatter scatter_ scatter_add "
    "scatter_add_ index_select index_add index_add_ index_copy_ masked_fill masked_fill_ masked_select take_along_dim "
    "eq ne lt le gt ge maximum minimum pow lerp lerp_ addcmul addcmul_ addcdiv addcdiv_ logical_and logical_or".split()
)
KEEP_METHODS = frozenset(
    "view reshape unsqueeze squeeze expand expand_as repeat permute transpose t flatten contiguous clone detach float long "
    "int bool half double bfloat16 byte narrow chunk split unbind tril triu flip roll sum mean max min argmax argmin sort "
    "argsort topk cumsum cumprod abs exp log log2 sqrt sigmoid softmax log_softmax tanh relu norm clamp clamp_ clamp_min "
    "floor ceil round neg any all prod std var nonzero unique view_as type requires_grad_ fill_ zero_ uniform_ normal_ "
    "triu_ tril_ div_ sub_ add_ mul_ T mT mH repeat_interleave masked_fill index_select gather diag diagonal to_dense "
    "square rsqrt erf logsumexp logical_not bitwise_not isnan isinf isfinite movedim swapaxes unfold unflatten ravel "
    "real imag conj sign trunc frac cos sin tan reciprocal detach_ squeeze_ unsqueeze_ random_ bernoulli_ bernoulli".split()
)
"""Tensor methods whose result is a tensor where the receiver is."""
REDUCTIONS = frozenset("sum mean max min argmax argmin any all prod std var norm nanmean nansum median".split())
"""Methods that leave no dimension where they are not told which to reduce."""
HOST_METHODS = frozenset("item tolist numpy size dim numel stride element_size get_device nelement ndimension".split())
TENSOR_METHODS = frozenset(
    "size unsqueeze view new_zeros new_ones new_empty new_full new_tensor numel expand_as expand contiguous detach topk "
    "softmax log_softmax masked_fill scatter_ gather index_select argsort permute unbind chunk float long sigmoid clamp_ "
    "dim squeeze_ type_as backward".split()
)
"""Methods that only tensors have among the things that are passed round: a call of one proves the kind."""
HOST_ONLY = frozenset("numpy cpu astype tolist item tobytes save convert resize crop mode filename ndarray".split())
"""Attributes after which a parameter is taken to live on the host."""
ARRAY_LIBRARIES = ("numpy.", "np.", "scipy.", "sklearn.metrics.", "matplotlib.pyplot.", "seaborn.", "cv2.")
"""Packages whose functions turn what they are given into NumPy arrays."""
DEVICE_NAME = re.compile(r"(?:^|_)(?:device|dev|gpu|cuda|rank|map_location)s?(?:$|_|\d)|device", re.I)
OPTIONS_NAME = re.compile(r"^(?:self|args?|opts?|options|cfg|config|hparams|params|settings|flags|trainer|ctx)\b", re.I)
LOSS_NAME = re.compile(r"(?:^|_|\.)(?:criterion|crit|loss|loss_?fn|loss_?func\w*|objective)\w*$|criterion|loss_f", re.I)
MODULE_NAME = re.compile(
    r"(?:^|_|\.)(?:\w*model|net|\w+net|network|module|encoder|decoder|generator|discriminator|critic|actor|policy|"
    r"backbone|student|teacher|classifier|unet|vae|transformer|resnet|[GDEFQ]|net[GDEQ]|[GD]_\w+)\d*$",
    re.I,
)
HOST_ARGUMENT = re.compile(r"len|size|path|name|meta|info|idx|index|id$|num|shape|file|text|step|epoch|key|opt", re.I)
CAPABILITY = re.compile(r"cuda|gpu|is_available|device|accelerat|mps|xpu", re.I)
HOST_FUNCTION = re.compile(
    r"collate|__getitem__|transform|augment|preprocess|pre_process|plot|draw|visuali[sz]e|dataset|numpy|to_np|tokeniz|"
    r"_np$|load_data|read_|image_to|export|onnx|trace|dump|print|example|dummy",
    re.I,
)
HOST_FOLDER = re.compile(r"transforms?|datasets?|loaders?|dataloaders?|data|preprocess\w*|augment\w*", re.I)
BATCH_NAME = re.compile(
    r"batch(?!_?size|_?idx|_?i(?:d|nd)|_?num)|^data$|^samples?$|^inputs?$|^examples?$|^minibatch$", re.I
)
NUMBER_NAME = re.compile(r"(?:^|_)(?:size|num|n|k|dim|dims|count|shape|step|steps)$|^num_|^n_", re.I)
FRAMEWORK_ROOTS = frozenset(
    "pytorch_lightning lightning lightning_fabric accelerate ignite deepspeed torch_xla horovod composer dgl fastai "
    "torch_geometric colossalai catalyst torchtnt".split()
)
COUNTER = re.compile(
    r"_?(?:i|j|k|n|it|idx|index|step|count|cnt|\w*_(?:i|idx|index|id|num|step)|iteration|batch_?i(?:dx|d)?|_+)"
)
WRAPPERS = frozenset("tqdm trange track iter islice list reversed progress_bar prog tqdm_notebook".split())
