# Where allograft.compat.full_cuda_graph and cuda_graph differ on purpose from what they stand in for, on the stub of
# PyTorch: run by test_compat.py. What they have in common is in seed_scripts/.

import dataclasses
import os
import sys
import types
import unittest
import warnings

import allograft
import fake_torch
import python_device as device
from fake_torch import LOG, State, Tensor

torch = fake_torch.install()

from allograft.compat.cuda_graph import CUDAGraph, graph  # noqa: E402
from allograft.compat.full_cuda_graph import (FullCudaGraphWrapper, StaticBufferLoader,  # noqa: E402
                                              get_shared_capture_stream)


@dataclasses.dataclass
class Extra:
    mask: object
    later: object = dataclasses.field(init=False)


class Case(unittest.TestCase):
    def setUp(self):
        torch.cuda.CUDAGraph = fake_torch.CUDAGraph
        CUDAGraph._debugging = False
        FullCudaGraphWrapper(None).reset_cuda_graph()
        for buffers in StaticBufferLoader.static_buffers.values():
            buffers.clear()
        self.seen = []
        LOG.clear()

    def refused(self, kind, text, call, *args, **kwargs):
        with self.assertRaisesRegex(kind, text):
            call(*args, **kwargs)


class Iterations(Case):
    def function(self, data_iterator, num_microbatches, model, **kwargs):
        items = [next(iterator) for iterator in data_iterator if iterator for _ in range(num_microbatches)]
        self.seen.append(items)
        return [item['x'] * 2 for item in items]

    def run_step(self, wrapper, data, n=1, model='model', forward_only=False):
        found = wrapper(data_iterator=data, model=model, num_microbatches=n, seq_length=4, forward_only=forward_only)
        return [tensor.values for tensor in found]

    def test_nothing_is_frozen_before(self):
        wrapper = FullCudaGraphWrapper(self.function, 5)
        for i, item in enumerate((
                {'x': Tensor([1])}, {'x': Tensor([1, 2]), 'scale': 1},
                {'x': Tensor([3, 4], fake_torch.int64), 'scale': 2},
                {'x': Tensor([5, 6]), 'extra': Extra(Tensor([7])), 'f': len},
                {'x': Tensor([8]), 'f': max}, {'x': Tensor([9])})):
            self.assertEqual(self.run_step(wrapper, iter([item])), [[2 * v for v in item['x'].values]])
            given, = self.seen[-1]
            self.assertEqual((list(given), given['x'].dtype), (list(item), item['x'].dtype))
            self.assertEqual(given.get('f'), item.get('f'))
        self.assertEqual(given['x'].values, [9])
        self.assertIsNotNone(FullCudaGraphWrapper.cuda_graph['training'])

    def test_what_keeps_its_shape_keeps_its_buffer(self):
        wrapper, places = FullCudaGraphWrapper(self.function, 3), []
        for values in ([1, 2], [3, 4], [5, 6], [7, 8], [9, 10]):
            self.run_step(wrapper, iter([{'x': Tensor(values), 'tuple': (Tensor([0]), 'text')}]))
            places.append(StaticBufferLoader.static_buffers['training'][0]['x'])
        self.assertEqual(len({id(place) for place in places}), 1)
        self.assertEqual(len(self.seen), 4)

    def recorded(self, *items):
        wrapper = FullCudaGraphWrapper(self.function, 0)
        self.run_step(wrapper, iter(items), len(items))
        self.assertIsNotNone(FullCudaGraphWrapper.cuda_graph['training'])
        return wrapper

    def test_what_is_refused_once_recorded(self):
        wrapper = self.recorded({'x': Tensor([1, 2]), 'y': Tensor([3]), 'name': 'a'})
        again = {'x': Tensor([4, 5]), 'y': Tensor([6]), 'name': 'b', 'new': Tensor([7]), 'other': print}
        self.assertEqual(self.run_step(wrapper, iter([again])), [[8, 10]])
        self.assertEqual(StaticBufferLoader.static_buffers['training'][0]['name'], 'b')
        data = iter([{'x': Tensor([1]), 'y': Tensor([2])}, {'x': Tensor([6, 7]), 'y': Tensor([8], fake_torch.int64)}])
        for _ in range(2): # it is not lost
            self.refused(allograft.InvalidArgument, r"training, micro-batch 0: input\['x'\] has shape \(1,\), was "
                         r'recorded with \(2,\): reset_cuda_graph', self.run_step, wrapper, data)
        self.refused(allograft.InvalidArgument, r"training, micro-batch 0: input\['y'\] was recorded with a tensor, "
                     'which is missing', self.run_step, wrapper, iter([{'x': Tensor([8, 9])}]))
        self.refused(allograft.InvalidArgument, r'micro-batches \[2\], was recorded with \[1\]', self.run_step, wrapper,
                     iter([again] * 2), 2)
        self.refused(allograft.InvalidArgument, r'micro-batches \[None\]', self.run_step, wrapper, None)
        self.assertEqual((StaticBufferLoader.static_buffers['training'][0]['x'].values, wrapper.curr_iter('training')),
                         ([4, 5], 2))
        del again['new'] # which was not there when it was recorded
        self.assertEqual(self.run_step(wrapper, iter([again])), [[8, 10]])
        StaticBufferLoader.static_buffers['training'].clear()
        self.refused(allograft.InvalidArgument, 'was recorded with a tensor', self.run_step, wrapper, iter([again]))
        self.assertEqual(len(self.seen), 1)

    def test_structures_below(self):
        """Dicts in dicts, lists, tuples, dataclasses: once recorded, each tensor in them must be there and fit."""
        def item(n, mask=None):
            return {'a': {'b': [Tensor([n]), {'x': (Tensor([n, n]), 'text', n)}]}, 'x': Tensor([n]),
                    'extra': Extra(mask or Tensor([n] * 3)), None: float('nan')}

        wrapper = self.recorded(item(1))
        for n in (2, 3):
            self.assertEqual(self.run_step(wrapper, iter([item(n)])), [[2 * n]])
            static = StaticBufferLoader.static_buffers['training'][0]
            self.assertEqual((static['a']['b'][1]['x'][0].values, static['a']['b'][1]['x'][2]), ([n, n], n))
            self.assertEqual((type(static['extra']), static['extra'].mask.values), (Extra, [n] * 3))
        self.refused(allograft.InvalidArgument, r"input\['extra'\]\.mask has shape", self.run_step, wrapper,
                     iter([item(4, Tensor([1]))]))
        short = item(5)
        short['a']['b'].pop()
        self.refused(allograft.InvalidArgument, r"\['a'\]\['b'\]\[1\]\['x'\]\[0\] was recorded with a tensor",
                     self.run_step, wrapper, iter([short]))
        other = item(6)
        other['a'] = 'text'
        self.refused(allograft.InvalidArgument, r"\['a'\]\['b'\]\[0\] was recorded", self.run_step, wrapper,
                     iter([other]))

    def test_a_refused_load_consumes_nothing(self):
        good, longer = {'x': Tensor([1, 2])}, {'x': Tensor([1, 2, 3])}
        wrapper = self.recorded(good, good)
        items = [{'x': Tensor([5, 6])}, longer, {'x': Tensor([7, 8])}, {'x': Tensor([9, 10])}]
        data = iter(items)
        buffers = [held['x'].values[:] for held in StaticBufferLoader.static_buffers['training']]
        self.refused(allograft.InvalidArgument, 'micro-batch 1', self.run_step, wrapper, data, 2)
        self.assertEqual([held['x'].values for held in StaticBufferLoader.static_buffers['training']], buffers)
        wrapper.reset_cuda_graph() # as the message says
        self.assertEqual(self.run_step(FullCudaGraphWrapper(self.function), data, 2), [[10, 12], [2, 4, 6]])
        self.assertEqual(self.run_step(wrapper, data, 2), [[14, 16], [18, 20]])
        with self.assertRaises(StopIteration):
            self.run_step(wrapper, data, 2)
        # what was there when the data ended is there again; another iterator is another one
        half = iter([good])
        for _ in range(2):
            with self.assertRaises(StopIteration):
                wrapper.data_read(half, 'model', True, 2)
        self.assertEqual([item['x'].values for item in wrapper.data_read(half, 'model', True, 1)[0]], [[1, 2]])
        with self.assertRaises(StopIteration):
            wrapper.data_read(half, 'model', True, 1)

    def test_wrong_calls_read_nothing(self):
        wrapper, data = FullCudaGraphWrapper(self.function), iter([{'x': Tensor([1])}, 7])
        self.refused(AssertionError, '1 data iterators for a model of 2 chunks', self.run_step, wrapper, data, 1,
                     [1, 2])
        self.refused(AssertionError, 'no positional arguments, 2 were given', wrapper, 1, data)
        self.refused(AssertionError, 'needs the arguments num_microbatches, seq_length', wrapper, data_iterator=data,
                     model=1, forward_only=False)
        self.assertEqual(self.run_step(wrapper, data), [[2]])
        self.refused(AssertionError, 'a micro-batch is a dict.*no int', self.run_step, wrapper, data)
        self.refused(AssertionError, "stage 'test': None, or one of training, validation", wrapper.reset_cuda_graph,
                     'test')
        self.refused(AssertionError, "stage 'test'", StaticBufferLoader(), {}, 'test', 0)
        self.refused(AssertionError, 'training has 1 micro-batches: number 2', StaticBufferLoader(), {}, 'training', 2)

    def test_chunks_have_buffers_of_their_own(self):
        wrapper = FullCudaGraphWrapper(self.function)
        for i in range(4):
            data = [iter([{'x': Tensor([10 * chunk + i])}] * 2) for chunk in range(2)]
            self.assertEqual(self.run_step(wrapper, data, 2, ['first', 'second']),
                             [[2 * i]] * 2 + [[20 + 2 * i]] * 2)
        self.assertEqual(len(self.seen), 2)

    def test_what_the_function_takes_away_is_there_again(self):
        def function(data_iterator, **kwargs):
            item = next(data_iterator[0])
            return [item.pop('x') * 2, item['parts'].pop() * 3]

        wrapper = FullCudaGraphWrapper(function)
        for i in range(4):
            found = self.run_step(wrapper, iter([{'x': Tensor([i]), 'parts': [Tensor([10 * i])]}]))
            self.assertEqual(found, [[2 * i], [30 * i]])

    def test_a_recording_that_fails(self):
        def function(data_iterator, **kwargs):
            x = next(data_iterator[0])['x']
            self.seen.append(1)
            x.item()
            return [x * 2]

        wrapper = FullCudaGraphWrapper(function)
        self.assertEqual(self.run_step(wrapper, iter([{'x': Tensor([1])}])), [[2]])
        self.refused(RuntimeError, 'previous error during capture', self.run_step, wrapper, iter([{'x': Tensor([2])}]))
        self.assertEqual((State.current, State.capture, State.stuck), (fake_torch.MAIN, None, set()))
        self.assertIsNone(FullCudaGraphWrapper.cuda_graph['training'])
        for values in ([3], [4, 5], [6, 7, 8]): # by any wrapper, and nothing is frozen
            self.assertEqual(self.run_step(FullCudaGraphWrapper(function), iter([{'x': Tensor(values)}])),
                             [[2 * v for v in values]])
        self.assertEqual((len(self.seen), wrapper.curr_iter('training')), (5, 5))

    def test_order_on_the_device(self):
        wrapper = FullCudaGraphWrapper(self.function)
        on_device = Tensor([1], device='cuda')
        self.run_step(wrapper, iter([{'x': on_device}]))
        side, stream = wrapper.static_loader.stream, get_shared_capture_stream()
        self.assertEqual([row for row in LOG if row[0] == 'wait'],
                         [('wait', side.name, 'main'), ('wait', 'main', side.name), ('wait', stream.name, 'main'),
                          ('wait', 'main', stream.name)])
        self.assertEqual(on_device.streams, [side])
        State.distributed = True
        try:
            self.run_step(wrapper, iter([{'x': on_device}]))
        finally:
            State.distributed = False
        self.assertEqual([row[0] for row in LOG if row[0] in ('barrier', 'begin', 'end', 'replay', 'follow')],
                         ['follow', 'barrier', 'begin', 'end', 'barrier', 'replay'])
        self.assertIn('thread_local', [row[-1] for row in LOG if row[0] == 'begin'])

    def test_not_in_a_capture(self):
        with allograft.Graph().capture():
            self.refused(allograft.Capturing, 'FullCudaGraphWrapper', self.run_step,
                         FullCudaGraphWrapper(self.function), None)
            self.refused(allograft.Capturing, 'StaticBufferLoader', StaticBufferLoader(), {}, 'training', 0)
            self.refused(allograft.Capturing, 'reset', FullCudaGraphWrapper(None).reset_cuda_graph)


class RandomNumbers(Case):
    """Generators of trackers go on from replay to replay."""

    def tracked(self, module, **functions):
        sys.modules[module] = types.SimpleNamespace(**functions)
        self.addCleanup(sys.modules.pop, module)

    def drawn(self, generator, make):
        step = make(lambda **kwargs: [generator.draw()])
        return [step(data_iterator=None, model='m', num_microbatches=1, seq_length=1, forward_only=False)[0].values[0]
                for _ in range(5)]

    def check(self, generator, wanted):
        self.assertEqual(self.drawn(generator, FullCudaGraphWrapper), wanted)
        generator.drawn = 0
        self.assertEqual(self.drawn(generator, allograft.FullIterationGraph), wanted)

    def test_of_nobody(self):
        self.check(fake_torch.Generator(), [1, 2, 2, 2, 2])

    def test_of_all_states(self):
        generator = fake_torch.Generator()
        self.tracked('megatron.core.tensor_parallel.random', get_all_rng_states=lambda: {
            'model-parallel-rng': generator, 'the-same': generator, 'bytes': Tensor([1])})
        self.check(generator, [1, 2, 3, 4, 5])

    def test_of_a_tracker(self):
        generator = fake_torch.Generator()
        tracker = types.SimpleNamespace(get_states=lambda: {'model-parallel-rng': generator})
        self.tracked('megatron.core.tensor_parallel.random', get_cuda_rng_tracker=lambda: tracker)
        self.check(generator, [1, 2, 3, 4, 5])

    def test_of_another_package_and_none_yet(self):
        def nothing_yet():
            raise AssertionError('the tracker is not initialized')

        generator = fake_torch.Generator()
        self.tracked('megatron.core.tensor_parallel.random', get_all_rng_states=nothing_yet)
        self.tracked('transformer_engine.pytorch.distributed', get_all_rng_states=lambda: {'te': generator})
        self.check(generator, [1, 2, 3, 4, 5])


class Graphs(Case):
    def test_captured_again(self):
        made, out = CUDAGraph(), Tensor([0])
        with self.assertRaises(KeyError), graph(made, stream=torch.cuda.Stream('mine')):
            raise KeyError
        self.assertIs(State.current, fake_torch.MAIN)
        for value in (1, 2):
            with graph(made):
                out.copy_(Tensor([value]))
            made.replay()
            self.assertEqual(out.values, [value])
            made.reset()
            self.refused(RuntimeError, 'no capture', made.pool)

    def test_a_graph_as_pool(self):
        first, second, third = CUDAGraph(), CUDAGraph(), CUDAGraph()
        with graph(first):
            pass
        with graph(second, pool=first):
            pass
        with torch.cuda.stream(torch.cuda.Stream()):
            third.capture_begin(pool=second)
            third.capture_end()
        self.assertEqual((second.pool(), third.pool()), (first.pool(), first.pool()))

    def test_versions(self):
        self.refused(allograft.Unsupported, 'PyTorch 2.8', CUDAGraph, keep_graph=True)
        self.refused(allograft.Unsupported, 'check_input_liveness True', CUDAGraph().capture_begin,
                     check_input_liveness=True)
        made = CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):
            made.capture_begin(check_input_liveness=False)
            made.capture_end()

    def test_debugging_is_of_all(self):
        torch.cuda.CUDAGraph = fake_torch.NewerGraph
        before, after = CUDAGraph(), CUDAGraph()
        with graph(before):
            pass
        CUDAGraph().enable_debug_mode()
        with graph(after):
            pass
        with self.assertWarnsRegex(UserWarning, 'enable_debug_mode'):
            before.debug_dump(os.devnull)
        after.debug_dump(os.devnull)
        self.assertEqual(LOG[-1], ('dump', os.devnull))
        empty = CUDAGraph(keep_graph=True)
        with self.assertWarnsRegex(UserWarning, 'no capture'):
            empty.debug_dump(os.devnull)

    def test_natively(self):
        """Without PyTorch's GPU the library captures."""
        device.open_device()
        State.available = False
        try:
            stream, memory = allograft.shared_capture_stream(), device.alloc(64)
            made = CUDAGraph()
            made.capture_begin()
            device.fill(memory, 5, 16, stream)
            made.capture_end()
            made.replay()
            self.assertEqual(device.word(memory), 5)
            path = os.path.join(os.environ['TMPDIR'], 'native.dot')
            kept = CUDAGraph()
            kept.enable_debug_mode()
            with graph(kept, stream=stream):
                device.fill(memory, 6, 16, stream)
            kept.debug_dump(path)
            self.assertGreater(os.path.getsize(path), 0)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter('always')
                kept.debug_dump(path)
            self.assertEqual(len(told), 1)
        finally:
            State.available = True


if __name__ == '__main__':
    done = unittest.main(exit=False, verbosity=0).result
    sys.stdout.flush()
    sys.exit(not done.wasSuccessful())
