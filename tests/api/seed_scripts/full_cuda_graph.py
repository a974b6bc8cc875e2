# Written after the documentation of megatron.core.full_cuda_graph, for PyTorch as it is and for the stub of it: the
# import of the module is all that names Allograft. Runs on either.

import unittest

import torch

from allograft.compat import full_cuda_graph
from allograft.compat.full_cuda_graph import (FullCudaGraphWrapper, StaticBufferLoader, clone_tensors_in_struct,
                                              copy_tensors_in_struct, get_graph_pool, get_shared_capture_stream,
                                              get_shared_graph_pool)

MICROBATCHES, ITERATIONS, EVALUATE_EVERY, EVALUATIONS = 3, 200, 20, 2


class Model:
    """y = weight * x, trained to be 3 * x; the gradient is worked out by hand."""

    def __init__(self):
        self.weight = torch.tensor([0.5, 0.25], device='cuda')
        self.grad = torch.tensor([0.0, 0.0], device='cuda')
        self.calls = {'training': 0, 'validation': 0}


def batches(first):
    """Endless micro-batches on the host, no two of them equal."""
    n = first
    while True:
        n += 1
        yield {'x': torch.tensor([n % 7 * 0.25, n % 5 * 0.5]), 'name': 'batch %d' % n, 'number': n}


def forward_backward(*, forward_step_func, data_iterator, model, num_microbatches, seq_length, micro_batch_size,
                     forward_only, adjust_tensor_shapes_fn=None):
    del seq_length, micro_batch_size, adjust_tensor_shapes_fn
    model[0].calls['validation' if forward_only else 'training'] += 1
    if not forward_only:
        model[0].grad.zero_()
    return [forward_step_func(next(data_iterator[0]), model[0], forward_only) for _ in range(num_microbatches)]


def forward_step(data, model, forward_only):
    x = data['x']
    wrong = model.weight * x - x * 3.0
    if not forward_only:
        model.grad.add_(wrong * x * 2.0)
    return {'lm loss': (wrong * wrong).mean()}


def by_hand(function):
    """Hands the data on as the wrapper does, and does nothing else."""
    def call(*, data_iterator, **kwargs):
        moved = ({'x': item['x'].cuda(), 'name': item['name']} for item in data_iterator[0])
        return function(data_iterator=[moved], **kwargs)
    return call


def train(wrap):
    """The losses of a training that is interrupted by evaluations, as Megatron's loop makes them: a wrapper for the
    training, and one for each evaluation."""
    model, losses = Model(), []
    training, validation = batches(0), batches(1000)

    def run(step, data, forward_only):
        found = step(forward_step_func=lambda *args: forward_step(*args), data_iterator=[data], model=[model],
                     num_microbatches=MICROBATCHES, seq_length=2, micro_batch_size=1, forward_only=forward_only,
                     adjust_tensor_shapes_fn=lambda shapes: shapes)
        losses.append(tuple(entry['lm loss'].item() for entry in found))

    step = wrap(forward_backward)
    for i in range(ITERATIONS):
        run(step, training, False)
        model.weight.copy_(model.weight - model.grad * 0.01)
        if i % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            evaluate = wrap(forward_backward)
            for _ in range(EVALUATIONS):
                run(evaluate, validation, True)
    return losses, model.calls


class FullCudaGraph(unittest.TestCase):
    def setUp(self):
        FullCudaGraphWrapper(forward_backward).reset_cuda_graph()
        for buffers in StaticBufferLoader.static_buffers.values():
            buffers.clear()

    def call(self, wrapper, data, n=1, forward_only=False):
        return wrapper(forward_step_func=None, data_iterator=data, model='model', num_microbatches=n, seq_length=2,
                       micro_batch_size=1, forward_only=forward_only)

    def test_training_with_evaluations(self):
        wanted, calls = train(by_hand)
        self.assertEqual(calls, {'training': ITERATIONS, 'validation': ITERATIONS // EVALUATE_EVERY * EVALUATIONS})
        self.assertLess(wanted[-1][0], wanted[0][0] + 1)
        for steps, single in ((1, False), (4, True)):
            FullCudaGraphWrapper(None).reset_cuda_graph()
            losses, calls = train(lambda function: FullCudaGraphWrapper(
                function, cuda_graph_warmup_steps=steps, use_single_mempool=single))
            self.assertEqual(losses, wanted)
            # those before the recording, and the recording: one of each stage
            self.assertEqual(calls, {'training': steps + 1, 'validation': steps + 1})
            self.assertEqual(FullCudaGraphWrapper.curr_iteration, {'training': 200, 'validation': 20})

    def test_three_wrappers_one_recording(self):
        calls = []

        def function(data_iterator, **kwargs):
            calls.append(1)
            return next(data_iterator[0])['x'] * 2.0

        for i in range(6):
            wrapper = FullCudaGraphWrapper(function)
            data = iter([{'x': torch.tensor([1.0 + i])}])
            result = self.call(wrapper, data, forward_only=True)
            self.assertEqual(result.item(), 2.0 + 2 * i)
            self.assertIs(result, FullCudaGraphWrapper.result['validation'])
            self.assertEqual(FullCudaGraphWrapper.cuda_graph['validation'] is not None, i >= 1)
        self.assertEqual((len(calls), FullCudaGraphWrapper.curr_iteration), (2, {'training': 0, 'validation': 6}))
        self.assertIsNone(FullCudaGraphWrapper.cuda_graph['training'])
        self.assertIsNone(FullCudaGraphWrapper.cuda_graph.get('training'))
        self.assertIsNone(FullCudaGraphWrapper.result['training'])

    def test_counts(self):
        wrapper, other = FullCudaGraphWrapper(forward_backward), FullCudaGraphWrapper(forward_backward, 7, True)
        self.assertEqual((wrapper.cuda_graph_warmup_steps, wrapper.use_single_mempool), (1, False))
        self.assertEqual((other.cuda_graph_warmup_steps, other.use_single_mempool), (7, True))
        self.assertIs(wrapper.forward_backward_func, forward_backward)
        self.assertEqual(wrapper.curr_iter('training'), 0)
        self.assertIsNone(wrapper.next_iter('training'))
        other.next_iter('training')
        other.next_iter('validation')
        self.assertEqual((other.curr_iter('training'), wrapper.curr_iter('validation')), (2, 1))

    def test_reset(self):
        wrapper, calls = FullCudaGraphWrapper(lambda **kwargs: calls.append(1)), []
        for forward_only in (False, True):
            for _ in range(3):
                self.call(wrapper, None, forward_only=forward_only)
        self.assertEqual(len(calls), 4)
        wrapper.reset_cuda_graph(stage='training')
        self.assertEqual(FullCudaGraphWrapper.curr_iteration, {'training': 0, 'validation': 3})
        self.assertIsNone(FullCudaGraphWrapper.cuda_graph['training'])
        self.assertIsNotNone(FullCudaGraphWrapper.cuda_graph['validation'])
        self.call(wrapper, None)
        self.call(wrapper, None, forward_only=True)
        self.assertEqual(len(calls), 5)
        wrapper.reset_cuda_graph()
        self.assertEqual(FullCudaGraphWrapper.curr_iteration, {'training': 0, 'validation': 0})
        self.assertEqual(set(FullCudaGraphWrapper.cuda_graph.values()), {None})
        self.assertEqual(set(FullCudaGraphWrapper.result.values()), {None})

    def test_state_is_the_classes(self):
        """It may be replaced as a whole, as tests of Megatron do."""
        FullCudaGraphWrapper.curr_iteration = {'training': 1, 'validation': 0}
        FullCudaGraphWrapper.cuda_graph = {'training': None, 'validation': None}
        FullCudaGraphWrapper.result = {'training': None, 'validation': None}
        StaticBufferLoader.static_buffers = {'training': [], 'validation': []}
        result = self.call(FullCudaGraphWrapper(lambda data_iterator, **kwargs: next(data_iterator[0])['x'] * 3.0),
                           iter([{'x': torch.tensor([2.0])}]))
        self.assertIsNotNone(FullCudaGraphWrapper.cuda_graph['training'])
        self.assertEqual((result.item(), FullCudaGraphWrapper.curr_iteration['training']), (6.0, 2))
        self.assertEqual(len(StaticBufferLoader.static_buffers['training']), 1)

    def test_data_read(self):
        wrapper = FullCudaGraphWrapper(forward_backward)
        data = iter([{'x': torch.tensor([float(i)])} for i in range(5)])
        read = wrapper.data_read(data, 'model', True, 2)
        self.assertEqual([item['x'].item() for item in read[0]], [0.0, 1.0])
        read = wrapper.data_read([data], ['model'], False, 1)
        self.assertEqual([item['x'].item() for item in read[0]], [2.0])
        self.assertEqual(wrapper.data_read(None, ['model'], True, 2), [None])
        read = wrapper.data_read([None, data], ['first', 'second'], True, 2)
        self.assertIsNone(read[0])
        self.assertEqual([item['x'].item() for item in read[1]], [3.0, 4.0])
        buffers = StaticBufferLoader.static_buffers
        self.assertEqual((len(buffers['training']), len(buffers['validation'])), (2, 1))
        with self.assertRaises(StopIteration):
            wrapper.data_read(data, 'model', True, 1)
        with self.assertRaises(AssertionError):
            wrapper.data_read([data], ['first', 'second'], True, 1)

    def test_calls_that_are_wrong(self):
        wrapper = FullCudaGraphWrapper(forward_backward)
        with self.assertRaises(AssertionError):
            wrapper('model')
        with self.assertRaises(AssertionError):
            wrapper(model='model', num_microbatches=1)

    def test_static_buffers(self):
        loader, other = StaticBufferLoader(), StaticBufferLoader()
        first = loader({'x': torch.tensor([1.0, 2.0]), 'name': 'one', 'none': None}, 'training', 0)
        self.assertTrue(first['x'].is_cuda)
        self.assertIs(StaticBufferLoader.static_buffers['training'][0], first)
        x = first['x']
        second = other(({'x': torch.tensor([3.0, 4.0]), 'name': 'two', 'y': torch.tensor([5.0])},), 'training', 0)
        self.assertIs(second, first)
        self.assertIs(second['x'], x)
        self.assertEqual((x.mean().item(), second['name'], second['y'].item()), (3.5, 'two', 5.0))
        loader({'x': torch.tensor([6.0])}, 'validation', microbatch=0)
        loader({'x': torch.tensor([7.0])}, 'training', 1)
        self.assertEqual(x.mean().item(), 3.5)
        self.assertEqual([len(StaticBufferLoader.static_buffers[s]) for s in ('training', 'validation')], [2, 1])
        for wrong in (({}, 'test', 0), ({}, 'training', 3), ([], 'training', 0)):
            with self.assertRaises(AssertionError):
                loader(*wrong)

    def test_shared(self):
        stream = get_shared_capture_stream()
        self.assertIs(stream, get_shared_capture_stream())
        self.assertIs(full_cuda_graph._shared_capture_stream, stream)
        self.assertIsInstance(stream, torch.cuda.Stream)
        pool = get_shared_graph_pool()
        self.assertEqual((get_shared_graph_pool(), get_graph_pool(True)), (pool, pool))
        self.assertEqual(full_cuda_graph._shared_graph_pool, pool)
        self.assertNotEqual(get_graph_pool(False), pool)
        self.assertNotEqual(get_graph_pool(use_single_mempool=False), get_graph_pool(False))
        self.assertEqual(full_cuda_graph.logger.name, full_cuda_graph.__name__)

    def test_structures(self):
        source = {'x': torch.tensor([1.0]), 'parts': [torch.tensor([2.0]), 'text', 4], 'pair': (torch.tensor([3.0]), 5)}
        copied = copy_tensors_in_struct(source)
        self.assertEqual((type(copied['pair']), copied['parts'][1:], copied['pair'][1]), (tuple, ['text', 4], 5))
        for old, new in ((source['x'], copied['x']), (source['parts'][0], copied['parts'][0]),
                         (source['pair'][0], copied['pair'][0])):
            self.assertIsNot(old, new)
            self.assertTrue(new.is_cuda)
            self.assertEqual(old.item(), new.item())
        x = copied['x']
        del copied['pair']
        clone_tensors_in_struct(copied, {'x': torch.tensor([6.0]), 'parts': [torch.tensor([7.0]), 'other', 8]})
        self.assertIs(copied['x'], x)
        self.assertEqual((x.item(), copied['parts'][0].item(), copied['parts'][1:]), (6.0, 7.0, ['other', 8]))
        for wrong in ((torch.tensor([1.0]),), 'text'):
            with self.assertRaises(Exception):
                clone_tensors_in_struct(copied, wrong)


if __name__ == '__main__':
    unittest.main(verbosity=0)
