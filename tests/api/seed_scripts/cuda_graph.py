# Written after the documentation of torch.cuda.CUDAGraph, for PyTorch 2.8 and later as it is and for the stub of it:
# the import below is all that names Allograft. Runs on either.

import os
import tempfile
import unittest
import warnings

import torch

from allograft.compat.cuda_graph import CUDAGraph, graph, graph_pool_handle


class Graphs(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter('ignore')
        self.x, self.y = torch.tensor([1.0, 2.0], device='cuda'), torch.tensor([0.0, 0.0], device='cuda')
        self.side = torch.cuda.Stream()

    def work(self):
        self.y.copy_(self.x * 2.0)

    def capture(self, into, **kwargs):
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):
            into.capture_begin(**kwargs)
            self.work()
            into.capture_end()

    def test_capture_and_replay(self):
        made = CUDAGraph()
        self.capture(made)
        torch.cuda.synchronize()
        self.assertEqual(self.y.mean().item(), 0.0)
        for value in (1.0, 5.0):
            self.x.copy_(torch.tensor([value, value]))
            self.assertIsNone(made.replay())
            self.assertEqual(self.y.mean().item(), 2 * value)

    def test_order_of_calls(self):
        made = CUDAGraph(keep_graph=False)
        for call in (made.replay, made.pool, made.capture_begin): # the default stream is the current one
            with self.assertRaises(RuntimeError):
                call()
        self.capture(made, pool=None, capture_error_mode='thread_local')
        with torch.cuda.stream(self.side), self.assertRaises(RuntimeError):
            made.capture_begin()
        made.reset()
        with self.assertRaises(RuntimeError):
            made.replay()

    def test_pools(self):
        pool = graph_pool_handle()
        first, second, third = CUDAGraph(), CUDAGraph(), CUDAGraph()
        self.capture(first, pool=pool, capture_error_mode='relaxed')
        self.capture(second, pool=first.pool())
        self.capture(third)
        self.assertEqual((first.pool(), second.pool()), (pool, pool))
        self.assertNotEqual(third.pool(), pool)
        self.assertNotEqual(graph_pool_handle(), pool)

    def test_context_manager(self):
        made = CUDAGraph()
        pool = graph_pool_handle()
        with graph(made, pool=pool, stream=self.side, capture_error_mode='thread_local'):
            self.assertTrue(torch.cuda.is_current_stream_capturing())
            self.work()
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        made.replay()
        self.assertEqual((self.y.mean().item(), made.pool()), (3.0, pool))
        other = CUDAGraph()
        with graph(other):
            self.work()
        self.y.zero_()
        other.replay()
        self.assertEqual(self.y.mean().item(), 3.0)

    def test_with_torch_cuda_graph(self):
        made = CUDAGraph()
        with torch.cuda.graph(made, stream=self.side):
            self.work()
        made.replay()
        self.assertEqual(self.y.mean().item(), 3.0)

    def test_keep_graph(self):
        made = CUDAGraph(keep_graph=True)
        self.capture(made)
        self.assertNotEqual(made.raw_cuda_graph(), 0)
        made.instantiate()
        made.replay()
        self.assertEqual(self.y.mean().item(), 3.0)
        made.instantiate()
        made.replay()
        later = CUDAGraph(True)
        self.capture(later)
        self.y.zero_()
        later.replay() # instantiates
        self.assertEqual(self.y.mean().item(), 3.0)
        plain = CUDAGraph()
        self.capture(plain)
        for call in (plain.raw_cuda_graph, plain.instantiate):
            with self.assertRaises(RuntimeError):
                call()

    def test_debug_dump(self):
        path = os.path.join(tempfile.mkdtemp(), 'graph.dot')
        kept = CUDAGraph(keep_graph=True)
        self.capture(kept)
        kept.debug_dump(debug_path=path)
        with open(path, encoding='utf-8') as file:
            self.assertIn('digraph', file.read())
        os.remove(path)
        plain = CUDAGraph()
        self.capture(plain)
        plain.debug_dump(path) # debugging is not enabled
        self.assertFalse(os.path.exists(path))
        debugged = CUDAGraph()
        self.assertIsNone(debugged.enable_debug_mode())
        self.capture(debugged)
        debugged.debug_dump(path)
        debugged.replay()
        self.assertEqual(self.y.mean().item(), 3.0)


if __name__ == '__main__':
    unittest.main(verbosity=0)
