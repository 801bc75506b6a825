"""Losses, metrics, recurrent and attention layers."""

import torch
import torch.nn.functional as F
from torch import nn

D = "cuda"


def mse_target_left():
    F.mse_loss(torch.randn(3, device=D), torch.zeros(3))  # raises RuntimeError: at least two devices


def smooth_l1_target_left():
    nn.SmoothL1Loss()(torch.randn(3, device=D), torch.zeros(3))  # raises RuntimeError


def huber_target_left():
    nn.HuberLoss()(torch.randn(3, device=D), torch.zeros(3))  # raises RuntimeError


def kl_target_left():
    log_p = torch.randn(2, 3, device=D).log_softmax(1)
    F.kl_div(log_p, torch.rand(2, 3), reduction="batchmean")  # raises RuntimeError: at least two devices


def bce_target_left():
    F.binary_cross_entropy_with_logits(torch.randn(3, device=D), torch.ones(3))  # raises RuntimeError: two devices


def bce_target_left_probabilities():
    nn.BCELoss()(torch.rand(3, device=D), torch.ones(3))  # raises RuntimeError


def pos_weight_left():
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0]))
    criterion(torch.randn(4, 2, device=D), torch.ones(4, 2, device=D))  # raises RuntimeError: at least two devices


def pos_weight_moved():
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0])).to(D)
    criterion(torch.randn(4, 2, device=D), torch.ones(4, 2, device=D))


def nll_labels_left():
    F.nll_loss(torch.randn(4, 3, device=D).log_softmax(1), torch.tensor([0, 1, 2, 0]))  # raises RuntimeError: target


def cross_entropy_images():
    logits = torch.randn(2, 3, 4, 4, device=D)
    F.cross_entropy(logits, torch.zeros(2, 4, 4, dtype=torch.long, device=D), ignore_index=255)
    F.cross_entropy(logits, torch.zeros(2, 4, 4, dtype=torch.long))  # raises RuntimeError: same device


def cross_entropy_soft_targets_left():
    F.cross_entropy(torch.randn(2, 3, device=D), torch.rand(2, 3))  # raises RuntimeError: at least two devices


def cross_entropy_smoothed():
    F.cross_entropy(torch.randn(2, 3, device=D), torch.tensor([0, 1], device=D), label_smoothing=0.1)


def gaussian_nll_variance_left():
    x = torch.randn(3, device=D)
    F.gaussian_nll_loss(x, x, torch.ones(3))  # raises RuntimeError


def cosine_target_left():
    x = torch.randn(2, 3, device=D)
    F.cosine_embedding_loss(x, x, torch.ones(2))  # raises RuntimeError: two devices


def triplet_left():
    x = torch.randn(2, 3, device=D)
    F.triplet_margin_loss(x, x, torch.randn(2, 3))  # raises RuntimeError: two devices


def margin_ranking_left():
    x = torch.randn(2, device=D)
    F.margin_ranking_loss(x, x, torch.ones(2))  # raises RuntimeError: two devices


def ctc_targets_left():
    log_p = torch.randn(5, 2, 4, device=D).log_softmax(-1)
    targets = torch.ones(2, 3, dtype=torch.long)
    F.ctc_loss(log_p, targets, torch.tensor([5, 5]), torch.tensor([3, 3]))  # raises RuntimeError


def accuracy_on_the_host():
    labels = torch.tensor([0, 1, 1, 0])
    logits = torch.randn(4, 2, device=D)
    logits.argmax(1).eq(labels).float().mean()  # raises RuntimeError: at least two devices


def accuracy_after_cpu():
    labels = torch.tensor([0, 1, 1, 0])
    logits = torch.randn(4, 2, device=D)
    logits.argmax(1).cpu().eq(labels).float().mean().item()  # syncs


def rnn_input_left():
    layer = nn.RNN(3, 4).to(D)
    layer(torch.randn(2, 1, 3))  # raises RuntimeError: Input and parameter tensors are not at the same device


def lstm_left_on_host():
    layer = nn.LSTM(3, 4)
    layer(torch.randn(2, 1, 3, device=D))  # raises RuntimeError: Input and parameter tensors are not at the same device


def lstm_cell_state_left():
    layer = nn.LSTM(3, 4, batch_first=True).to(D)
    h, c = torch.zeros(1, 2, 4, device=D), torch.zeros(1, 2, 4)
    layer(torch.randn(2, 5, 3, device=D), (h, c))  # raises RuntimeError: Input and hidden tensors are not at the same


def lstm_two_layers_both_ways():
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.1, batch_first=True).to(D)
    out, (h, c) = layer(torch.randn(2, 5, 3, device=D))
    assert out.is_cuda and h.is_cuda and c.is_cuda
    out.sum().backward()


def gru_hidden_from_the_input():
    layer = nn.GRU(3, 4, batch_first=True).to(D)
    x = torch.randn(2, 5, 3, device=D)
    layer(x, x.new_zeros(1, 2, 4))[0].sum().backward()


def gru_cell_hidden_left():
    cell = nn.GRUCell(3, 4).to(D)
    cell(torch.randn(2, 3, device=D), torch.zeros(2, 4))  # raises RuntimeError


def lstm_cell_loop():
    cell = nn.LSTMCell(3, 4).to(D)
    state = None
    for step in torch.randn(5, 2, 3, device=D):
        state = cell(step, state)
    state[0].sum().backward()


def packed_sequence_moved_late():
    layer = nn.GRU(3, 4, batch_first=True).to(D)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 5, 3), torch.tensor([5, 3]), batch_first=True)
    layer(packed)  # raises RuntimeError: not at the same device


def packed_sequence_moved():
    layer = nn.GRU(3, 4, batch_first=True).to(D)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 5, 3), torch.tensor([5, 3]), batch_first=True)
    layer(packed.to(D))[0].data.sum().backward()


def padded_lists_stay():
    rows = [torch.randn(3, device=D), torch.randn(2, device=D)]
    assert nn.utils.rnn.pad_sequence(rows, batch_first=True).is_cuda


def attention_mask_left():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).to(D)
    x = torch.randn(2, 5, 8, device=D)
    mask = torch.triu(torch.ones(5, 5), diagonal=1).bool()
    layer(x, x, x, attn_mask=mask)  # raises RuntimeError


def attention_key_left():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).to(D)
    x = torch.randn(2, 5, 8, device=D)
    layer(x, torch.randn(2, 5, 8), x)  # raises RuntimeError: same device


def decoder_mask_left():
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).to(D)
    x = torch.randn(2, 5, 8, device=D)
    layer(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))  # raises RuntimeError


def whole_transformer():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).to(D)
    x = torch.randn(2, 5, 8, device=D)
    mask = model.generate_square_subsequent_mask(5, device=D)
    padding = torch.zeros(2, 5, dtype=torch.bool, device=D)
    model(x, x, tgt_mask=mask, src_key_padding_mask=padding).sum().backward()  # syncs


def encoder_padding_left_in_eval():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(D).eval()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[:, 3:] = True
    with torch.no_grad():
        model(torch.randn(2, 5, 8, device=D), src_key_padding_mask=padding)  # raises RuntimeError


def sdpa_value_left():
    q = torch.randn(1, 2, 4, 8, device=D)
    F.scaled_dot_product_attention(q, q, torch.randn(1, 2, 4, 8))  # raises RuntimeError: same device type


def layer_norm_weight_left():
    x = torch.randn(2, 4, device=D)
    F.layer_norm(x, (4,), torch.ones(4), torch.zeros(4, device=D))  # raises RuntimeError


def batch_norm_function_stats_left():
    x = torch.randn(2, 4, device=D)
    F.batch_norm(x, torch.zeros(4), torch.ones(4))  # raises RuntimeError


def group_norm_of_a_host_module():
    nn.GroupNorm(2, 4)(torch.randn(2, 4, 3, device=D))  # raises RuntimeError


def conv_input_left():
    nn.Conv2d(3, 4, 3).to(D)(torch.randn(1, 3, 8, 8))  # raises RuntimeError: Input type (torch.FloatTensor) and weight


def conv_left_on_host():
    nn.Conv1d(3, 4, 3)(torch.randn(1, 3, 8, device=D))  # raises RuntimeError: Input type (torch.cuda.FloatTensor)


def conv_weight_of_a_function_left():
    kernel = torch.ones(1, 1, 3, 3)
    F.conv2d(torch.randn(1, 1, 8, 8, device=D), kernel)  # raises RuntimeError: Input type (torch.cuda.FloatTensor)


def conv_of_the_wrong_precision():
    layer = nn.Conv2d(3, 4, 3).to(D)
    layer(torch.randn(1, 3, 8, 8, device=D).half())  # raises RuntimeError: should be the same


def transposed_conv_left():
    nn.ConvTranspose2d(3, 4, 3).to(D)(torch.randn(1, 3, 8, 8))  # raises RuntimeError: Input type (torch.FloatTensor)


def pooling_upsampling_padding():
    x = torch.randn(1, 3, 8, 8, device=D, requires_grad=True)
    y = F.interpolate(F.max_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 2), scale_factor=2, mode="bicubic")
    F.avg_pool2d(F.pixel_shuffle(F.unfold(y, 2).unsqueeze(1)[:, :, :12, :12].repeat(1, 4, 1, 1), 2), 2).sum().backward()


def bilinear_left():
    nn.Bilinear(2, 3, 4).to(D)(torch.randn(1, 2, device=D), torch.randn(1, 3))  # raises RuntimeError


def prelu_left():
    nn.PReLU()(torch.randn(3, device=D))  # raises RuntimeError


def cosine_similarity_left():
    F.cosine_similarity(torch.randn(2, 3, device=D), torch.randn(2, 3))  # raises RuntimeError: same device


def pairwise_left():
    nn.PairwiseDistance()(torch.randn(2, 3, device=D), torch.randn(2, 3))  # raises RuntimeError: two devices
