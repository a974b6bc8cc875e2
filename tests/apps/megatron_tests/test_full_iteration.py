"""A GPT of Megatron-LM's own modules, on one GPU and without Transformer Engine, which Megatron's own tests of this need:
trained with full-iteration graphs, and kept in unified memory. megatron.py runs it both ways."""

import pytest
import torch

from megatron.core import parallel_state
from megatron.core.full_cuda_graph import FullCudaGraphWrapper, StaticBufferLoader
from megatron.core.inference.unified_memory import (
    UnifiedMemoryUnsupportedError,
    advise_managed_module_parameters_preferred_location,
    create_unified_mempool,
    prefetch_managed_module_parameters,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer.optimizer_cuda_graph import OptimizerCudaGraphWrapper
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import initialize_rng_tracker, model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig
from tests.unit_tests.test_utilities import Utils

TOKENS, SEQUENCE, BATCH, MICRO_BATCHES = 128, 32, 2, 2
STEPS, EVALUATE_EVERY = 12, 4


@pytest.fixture(autouse=True)
def alone():
    """One process is the whole world, and nothing is recorded before or after."""
    forget()
    Utils.initialize_model_parallel(1, 1)
    yield
    forget()
    initialize_rng_tracker(force_reset=True)
    Utils.destroy_model_parallel()


def forget():
    FullCudaGraphWrapper.curr_iteration = {"training": 0, "validation": 0}
    FullCudaGraphWrapper.cuda_graph = {"training": None, "validation": None}
    FullCudaGraphWrapper.result = {"training": None, "validation": None}
    StaticBufferLoader.static_buffers = {"training": [], "validation": []}
    OptimizerCudaGraphWrapper.curr_iteration = 0
    OptimizerCudaGraphWrapper.cuda_graph = OptimizerCudaGraphWrapper.result = None


def made_model(dropout):
    torch.manual_seed(7)  # positions are embedded by weights made on the host
    initialize_rng_tracker(use_cudagraphable_rng=True, force_reset=True)
    model_parallel_cuda_manual_seed(7, use_cudagraphable_rng=True)
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, hidden_dropout=dropout, attention_dropout=dropout,
        use_cpu_initialization=False, gradient_accumulation_fusion=False, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False, deterministic_mode=False)
    model = GPTModel(config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=TOKENS,
                     max_sequence_length=SEQUENCE).cuda()
    return model


def batches(seed):
    """Micro-batches on the host, as a data loader gives them. Each token is the one before plus one."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        text = (torch.randint(TOKENS, (BATCH, 1), generator=generator) + torch.arange(SEQUENCE + 1)) % TOKENS
        yield {"tokens": text[:, :-1].contiguous(), "labels": text[:, 1:].contiguous(),
               "position_ids": torch.arange(SEQUENCE).expand(BATCH, -1).contiguous(),
               "loss_mask": torch.ones(BATCH, SEQUENCE), "attention_mask": None}


def forward_step(data_iterator, model):
    batch = {name: value if value is None else value.cuda() for name, value in next(data_iterator).items()}
    losses = model(batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"])

    def loss_func(output):
        loss = torch.sum(output.float().view(-1) * batch["loss_mask"].view(-1))
        number = batch["loss_mask"].sum().to(torch.int)
        return loss, number, {"lm loss": (loss / number).detach()}

    return losses, loss_func


def losses_of(results):
    return [float(one["lm loss"]) for one in results]


def trained(dropout, graphs, optimizer_graph=False):
    """All losses of training and of evaluations, and which recordings were seen."""
    model = made_model(dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, capturable=True)
    step, function = optimizer.step, get_forward_backward_func()
    if optimizer_graph:  # recorded in the same iteration, after it, since they share memory
        step = OptimizerCudaGraphWrapper(step, cuda_graph_warmup_steps=2, use_single_mempool=True)
    if graphs:
        function = FullCudaGraphWrapper(function, cuda_graph_warmup_steps=2, use_single_mempool=optimizer_graph)
    data, held_out, losses, recorded = batches(1), batches(2), [], set()
    common = {"forward_step_func": forward_step, "model": [model], "num_microbatches": MICRO_BATCHES,
              "seq_length": SEQUENCE, "micro_batch_size": BATCH}
    for number in range(STEPS):
        model.train()
        optimizer.zero_grad(set_to_none=False)
        results = function(data_iterator=[data], forward_only=False, **common)
        step()
        losses += losses_of(results)
        if (number + 1) % EVALUATE_EVERY == 0:
            model.eval()
            evaluate = get_forward_backward_func()
            if graphs:  # made anew for each evaluation, as Megatron's training loop does
                evaluate = FullCudaGraphWrapper(evaluate, cuda_graph_warmup_steps=1)
            losses += losses_of(evaluate(data_iterator=[held_out], forward_only=True, **common))
        recorded.update((stage, id(graph)) for stage, graph in FullCudaGraphWrapper.cuda_graph.items() if graph)
    torch.cuda.synchronize()
    return losses, sorted(stage for stage, _ in recorded)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_training(dropout):
    """Same losses as without graphs, one recording for each stage."""
    expected, recorded = trained(dropout, graphs=False)
    assert recorded == []
    losses, recorded = trained(dropout, graphs=True)
    assert recorded == ["training", "validation"]
    assert len(losses) == MICRO_BATCHES * (STEPS + STEPS // EVALUATE_EVERY)
    assert losses == pytest.approx(expected, rel=1e-3)
    assert min(losses) < losses[0] - 0.5


def test_training_with_a_recorded_optimizer():
    """The optimizer's graph shares the capture stream and the pool of the iterations'."""
    expected, _ = trained(0.0, graphs=False)
    losses, recorded = trained(0.0, graphs=True, optimizer_graph=True)
    assert recorded == ["training", "validation"]
    assert OptimizerCudaGraphWrapper.curr_iteration == STEPS
    assert losses == pytest.approx(expected, rel=1e-3)


def test_results_that_are_no_tensors():
    """What test_forward_backward_func_with_full_cuda_graph shows, where the tensor parallel group is one GPU."""
    assert parallel_state.get_tensor_model_parallel_world_size() == 1
    initialize_rng_tracker(use_cudagraphable_rng=True, force_reset=True)
    model = made_model(0.0)

    def with_numbers(data_iterator, model):
        output, _ = forward_step(data_iterator, model)
        return output, lambda losses: (losses.mean(), {"loss_reduced": Utils.rank})

    function = FullCudaGraphWrapper(get_forward_backward_func())
    for _ in range(3):
        results = function(forward_step_func=with_numbers, data_iterator=[batches(3)], model=[model],
                           num_microbatches=4, seq_length=None, micro_batch_size=None, forward_only=True)
        assert [one["loss_reduced"] for one in results] == [Utils.rank] * 4
    assert FullCudaGraphWrapper.cuda_graph["validation"] is not None


def test_weights_in_unified_memory():
    """A model that is idle on the host, and computes as before when it is back: what Megatron's reinforcement learning does
    with its inference model."""
    try:
        pool = create_unified_mempool()
    except UnifiedMemoryUnsupportedError as reason:
        pytest.skip(str(reason).splitlines()[0])
    with torch.cuda.use_mem_pool(pool):
        model = made_model(0.0).eval()
    batch = {name: value if value is None else value.cuda() for name, value in next(batches(4)).items()}

    def logits():
        with torch.no_grad():
            return model(batch["tokens"], batch["position_ids"], batch["attention_mask"])

    expected = logits()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    for device in (-1, torch.cuda.current_device()):
        advise_managed_module_parameters_preferred_location(model, device=device)
        moved = prefetch_managed_module_parameters(model, device=device)
        torch.cuda.synchronize()
        assert moved == sum(parameter.nbytes for parameter in set(model.parameters()))
        assert torch.equal(logits(), expected)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
