# What the Python package asks of PyTorch, of a stub that writes it down: run by test_python.py.

import os
import sys
import unittest

import allograft
import fake_torch
import python_device as device
from fake_torch import LOG, State, Tensor

torch = fake_torch.install()


class Case(unittest.TestCase):
    def setUp(self):
        device.open_device() # the managed pool asks the library
        torch.cuda.CUDAGraph = fake_torch.CUDAGraph
        LOG.clear()

    def refused(self, kind, text, call, *args, **kwargs):
        with self.assertRaisesRegex(kind, text):
            call(*args, **kwargs)


class Graphs(Case):
    def test_capture(self):
        graph, out = allograft.Graph(), Tensor([0, 0])
        self.assertFalse(graph.native)
        graph.register_generator_state('generator')
        with graph.capture(capture_error_mode='relaxed'):
            self.assertTrue(torch.cuda.is_current_stream_capturing())
            self.refused(allograft.Capturing, 'prefetch_tensor', allograft.prefetch_tensor, out, 'cpu')
            self.refused(allograft.Capturing, 'advise_module', allograft.advise_module, None, 'cpu')
            self.refused(allograft.Capturing, 'capture', lambda: allograft.Graph().capture().__enter__())
            out.copy_(Tensor([1, 2]))
        self.assertEqual(out.values, [0, 0])
        self.assertIn(('begin', graph.pool(), 'relaxed'), LOG)
        graph.replay()
        self.assertEqual((out.values, LOG[-1]), ([1, 2], ('replay', 'main')))
        graph.replay(torch.cuda.Stream('other'))
        self.assertEqual(LOG[-1], ('replay', 'other'))
        self.refused(allograft.WrongState, 'already', graph.capture_begin)
        graph.reset()
        self.refused(allograft.WrongState, 'no capture', graph.replay)
        self.assertEqual(graph._engine._graph.generators, ['generator'])
        with allograft.graph(graph):
            pass

    def test_begin_and_end(self):
        graph, stream = allograft.Graph(), torch.cuda.Stream('mine')
        graph.capture_begin(pool=(0, 77), stream=stream)
        self.assertIs(State.current, stream)
        graph.capture_end()
        self.assertIs(State.current, fake_torch.MAIN)
        self.assertEqual((graph.pool(), LOG), ((0, 77), [('begin', (0, 77), 'global'), ('end',)]))
        other = allograft.Graph()
        self.refused(allograft.InvalidArgument, 'a default stream', other.capture_begin)
        self.refused(allograft.InvalidArgument, 'a default stream', other.capture_begin, stream=fake_torch.MAIN)
        self.refused(allograft.InvalidArgument, 'a default stream', other.capture(stream=fake_torch.MAIN).__enter__)
        self.assertEqual((State.current, len(LOG)), (fake_torch.MAIN, 2)) # PyTorch was not asked
        other.capture_begin(pool=graph, stream=stream)
        other.capture_end()
        third = allograft.Graph()
        with third.capture(pool=torch.cuda.MemPool(None), stream=stream):
            pass
        self.assertEqual((other.pool(), third.pool()), ((0, 77), (1, 0)))
        self.refused(allograft.InvalidArgument, "not one of PyTorch's", allograft.Graph().capture_begin, pool=7)

    def test_natively_on_the_current_stream(self):
        """The library captures what PyTorch's current stream gets, and never a default one."""
        graph, memory, mine = allograft.Graph(native=True), device.alloc(64), torch.cuda.Stream('mine')
        self.refused(allograft.InvalidArgument, 'a default stream', graph.capture_begin)
        mine.cuda_stream = device.new_stream()
        with torch.cuda.stream(mine):
            graph.capture_begin()
            self.assertTrue(device.is_capturing(mine.cuda_stream))
            device.fill(memory, 3, 16, mine.cuda_stream)
            graph.capture_end()
            device.fill(memory, 1, 16, mine.cuda_stream)
            self.assertEqual(device.word(memory), 1)
            graph.replay()
        self.assertEqual(device.word(memory), 3)

    def test_a_body_that_fails(self):
        graph = allograft.Graph()
        with self.assertRaisesRegex(KeyError, 'mine'):
            with graph.capture():
                raise KeyError('mine')
        self.assertIsNone(State.capture)
        self.refused(allograft.WrongState, 'no capture', graph.replay)
        self.assertIs(State.current, fake_torch.MAIN)

    def test_a_capture_that_is_invalid(self):
        for begin_and_end in (False, True):
            graph, other = allograft.Graph(), allograft.Graph()
            pool = allograft.graph_pool_handle()
            with self.assertRaisesRegex(RuntimeError, 'previous error'):
                if begin_and_end:
                    graph.capture_begin(pool=pool, stream=torch.cuda.Stream())
                    State.invalid = True
                    graph.capture_end()
                else:
                    with graph.capture(pool=pool):
                        State.invalid = True
            # what PyTorch leaves open is closed: the pool for the allocator, the capture for the generator
            self.assertEqual((State.stuck, State.released[-1], State.capture), (set(), pool, None))
            self.assertIs(State.current, fake_torch.MAIN)
            self.refused(allograft.WrongState, 'no capture', graph.replay)
            with other.capture():
                pass

    def test_versions(self):
        self.refused(allograft.Unsupported, 'PyTorch 2.8', allograft.Graph, keep_graph=True)
        torch.cuda.CUDAGraph = fake_torch.NewerGraph
        kept = allograft.Graph(keep_graph=True)
        with kept.capture():
            pass
        kept.instantiate()
        self.assertEqual((kept.raw_cuda_graph(), LOG[-1]), (1234, ('instantiate',)))
        plain = allograft.Graph()
        plain.enable_debug_mode()
        self.assertTrue(plain._engine._graph.debug)
        with plain.capture():
            pass
        self.refused(allograft.WrongState, 'keep_graph', plain.raw_cuda_graph)
        plain.debug_dump(debug_path=os.devnull)
        self.assertEqual(LOG[-1], ('dump', os.devnull))
        self.assertTrue(allograft.Graph(native=True).native)

    def test_shared(self):
        pool = allograft.shared_graph_pool()
        self.assertEqual((pool, allograft.shared_graph_pool(0)), (pool, pool))
        self.assertNotEqual(allograft.graph_pool_handle(), pool)
        self.assertIs(allograft.shared_capture_stream(), allograft.shared_capture_stream('cuda:0'))


class Loader(Case):
    def test_copies_in_order(self):
        loader = allograft.StaticBufferLoader()
        parameter = fake_torch.Parameter([1])
        first = loader({'x': Tensor([1, 2]), 'n': 3, 'p': parameter})
        self.assertEqual(LOG, [('wait', 'side', 'main'), ('copy', 'side'), ('wait', 'main', 'side')])
        on_device = Tensor([3, 4], device='cuda:0')
        second = loader({'x': on_device, 'n': 3, 'p': parameter})
        self.assertIs(first['x'], second['x'])
        self.assertIs(first['p'], parameter)
        self.assertEqual((first['x'].values, first['x'].device, first['n']), ([3, 4], 'cuda:0', 3))
        self.assertEqual(len(on_device.streams), 1)
        self.refused(allograft.InvalidArgument, 'changed from', loader, {'x': Tensor([1, 2], fake_torch.int64), 'n': 3,
                                                                         'p': parameter})
        self.refused(allograft.InvalidArgument, r"\['p'\] changed", loader,
                     {'x': on_device, 'n': 3, 'p': fake_torch.Parameter([1])})
        self.refused(allograft.InvalidArgument, 'requires grad', loader,
                     {'x': Tensor([1, 2], requires_grad=True), 'n': 3, 'p': parameter})

    def test_not_in_a_capture(self):
        with allograft.Graph().capture():
            self.refused(allograft.Capturing, 'StaticBufferLoader', allograft.StaticBufferLoader(), [Tensor([1])])


class Iterations(Case):
    def test_nothing_is_frozen_before(self):
        graph = allograft.FullIterationGraph(self.step, warmup_steps=3)
        places = []
        for x in (Tensor([1, 2]), Tensor([3, 4]), Tensor([5, 6], fake_torch.int64), Tensor([7, 8], fake_torch.int64)):
            self.out = Tensor([0, 0])
            graph(x)
            self.assertEqual(self.out.values, x.values)
            places.append(self.given)
        self.assertEqual([id(place) for place in places[::2]], [id(place) for place in places[1::2]])
        self.assertIsNot(places[0], places[2])
        self.refused(allograft.InvalidArgument, r'from torch.int64 \(2,\) to torch.float32', graph, Tensor([9, 9]))

    def setUp(self):
        super().setUp()
        self.calls, self.out = 0, Tensor([0])

    def step(self, x, forward_only=False):
        self.calls += 1
        self.given = x
        self.out.copy_(x)
        return {'out': self.out}

    def run_step(self, graph, value, **more):
        result = graph(Tensor([value]), **more)
        self.assertEqual(result['out'].values, [value])
        return result

    def test_stages(self):
        graph = allograft.FullIterationGraph(self.step, warmup_steps=2, single_pool=True, generators=['mine'])
        self.run_step(graph, 1)
        # the body on the capture stream, between two waits
        self.assertEqual(LOG[-3:], [('wait', 'side', 'main'), ('copy', 'side'), ('wait', 'main', 'side')])
        for value in range(2, 7):
            result = self.run_step(graph, value)
            self.run_step(graph, value, forward_only=True)
        self.assertEqual(LOG[-1], ('replay', 'main'))
        self.assertIs(result, graph.result())
        self.assertEqual((self.calls, graph.next_iteration(), graph.next_iteration('validation')), (6, 6, 5))
        self.assertIn(('begin', allograft.shared_graph_pool(), 'thread_local'), LOG)
        self.assertEqual(graph._states['training'].graph._engine._generators, ['mine'])
        LOG.clear()
        graph.reset()
        self.assertEqual(LOG, [('reset',), ('reset',), ('empty_cache',)])
        self.run_step(graph, 9)
        self.assertEqual(self.calls, 7)

    def test_what_cannot_be_recorded_runs(self):
        def step(x):
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError('operation not permitted when stream is capturing')
            return self.step(x)

        graph = allograft.FullIterationGraph(step, 1)
        self.run_step(graph, 1)
        self.refused(RuntimeError, 'not permitted', self.run_step, graph, 2)
        self.assertIsNone(State.capture)
        self.run_step(graph, 3)
        self.assertEqual((self.calls, graph.next_iteration()), (2, 2))


class Pools(Case):
    def test_unified_mempool(self):
        pool = allograft.unified_mempool()
        self.assertIs(pool, allograft.unified_mempool('cuda:0'))
        path, *names = pool.names
        self.assertTrue(os.path.samefile(path, os.environ['PYTHON_LIBRARY']))
        self.assertEqual(names, ['allograft_torch_alloc', 'allograft_torch_free'])
        library = device.ctypes.CDLL(path) # as PyTorch opens it, and finds the functions
        self.assertTrue(library.allograft_torch_alloc and library.allograft_torch_free)
        self.refused(allograft.Unsupported, 'device 9', allograft.unified_mempool, 9)

    def test_expandable_segments(self):
        os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:64, expandable_segments:True'
        try:
            self.refused(allograft.Unsupported, 'expandable', allograft.unified_mempool)
        finally:
            del os.environ['PYTORCH_CUDA_ALLOC_CONF']

    def test_without_a_gpu_it_is_not_used(self):
        State.available = False
        try:
            self.assertTrue(allograft.Graph().native)
        finally:
            State.available = True


if __name__ == '__main__':
    done = unittest.main(exit=False, verbosity=0).result
    sys.stdout.flush()
    sys.exit(not done.wasSuccessful())
