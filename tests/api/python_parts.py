# The Python package on the simulated driver and without PyTorch: run by test_python.py, in every way of loading.

import array
import collections
import dataclasses
import gc
import json
import os
import sys
import tempfile
import threading
import unittest
from multiprocessing import shared_memory

import allograft
import python_device as device
from allograft import Action, _library

FOLDER = tempfile.mkdtemp()
PRELOADED = os.environ['PYTHON_PRELOADED'] == '1'


class Tensor:
    """As much of a torch.Tensor as the package asks for."""

    def __init__(self, address, n, size=4, *, storage=0, stride=1, is_cuda=True):
        self.address, self.n, self.size, self.storage, self.step = address, n, size, storage, stride
        self.is_cuda = is_cuda
        self.shape = (n,)

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.n

    def element_size(self):
        return self.size

    def is_contiguous(self):
        return self.step == 1

    def stride(self):
        return (self.step,)

    def untyped_storage(self):
        return Storage(self.storage or self.address)


class Storage:
    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return 4096


class Module:
    def __init__(self, parameters, buffers=()):
        self._parameters, self._buffers = parameters, buffers

    def parameters(self):
        return iter(self._parameters)

    def buffers(self):
        return iter(self._buffers)


class Array:
    def __init__(self, address, shape, typestr='<f4', strides=None):
        self.__cuda_array_interface__ = {
            'shape': shape, 'typestr': typestr, 'data': (address, False), 'version': 3, 'strides': strides}


class Case(unittest.TestCase):
    def setUp(self):
        device.open_device()
        self.stream = device.new_stream()

    def tearDown(self):
        gc.collect()
        device.synchronize()
        self.assertEqual(device.violations(), 0)

    def refused(self, kind, text, call, *args, **kwargs):
        with self.assertRaisesRegex(kind, text):
            call(*args, **kwargs)


class Library(Case):
    def test_is_found(self):
        self.assertTrue(allograft.is_loaded())
        self.assertEqual(allograft.is_preloaded(), PRELOADED)
        self.assertTrue(os.path.samefile(allograft.library_path(), os.environ['PYTHON_LIBRARY']))

    def test_errors_have_their_classes(self):
        for status, kind in ((1, allograft.NotLoaded), (2, ValueError), (3, allograft.Unsupported),
                             (4, allograft.Capturing), (5, MemoryError), (6, allograft.NotReady),
                             (7, allograft.WrongState), (8, allograft.DriverError)):
            error = _library.error(status, 'text')
            self.assertIsInstance(error, kind)
            self.assertEqual((error.status, error.text, str(error)), (status, 'text', 'text'))
        self.refused(allograft.InvalidArgument, 'device 99', allograft.managed_alloc, 16, 99, self.stream)
        self.refused(allograft.InvalidArgument, 'size -1', allograft.managed_alloc, -1, 0, self.stream)

    def test_an_older_library_lacks_functions(self):
        whole = _library.Api.from_buffer_copy(device.ctypes.cast(
            _library.library()._functions['mark'], device.ctypes.c_void_p).value.to_bytes(8, 'little') * 64)
        whole.bytes = _library.Api.mark.offset
        old = _library.Library(whole, 'old.so', False)
        self.assertEqual(old.status('mark', b'x'), _library.NOT_LOADED)
        self.refused(allograft.NotLoaded, 'old.so has no mark', old.call, 'mark', b'x')


class Devices(Case):
    def test_numbers(self):
        from allograft._interop import device_number
        kind = collections.namedtuple('device', 'type index')
        for given, number in ((0, 0), (3, 3), (-1, -1), ('cpu', -1), ('cuda', 0), ('cuda:2', 2), (None, 0),
                              (kind('cuda', 1), 1), (kind('cuda', None), 0), (kind('cpu', None), -1)):
            self.assertEqual(device_number(given), number, given)
        for wrong in (-2, 'gpu', 'cuda:x', 1.5):
            self.refused(allograft.InvalidArgument, 'device', device_number, wrong)

    def test_streams(self):
        from allograft._interop import stream_handle
        kind = collections.namedtuple('stream', 'cuda_stream')
        cupy = collections.namedtuple('stream', 'ptr')

        class Protocol:
            def __cuda_stream__(self):
                return 0, 77

        self.assertEqual([stream_handle(s) for s in (None, 5, kind(6), cupy(7), Protocol())], [0, 5, 6, 7, 77])
        self.refused(allograft.InvalidArgument, 'stream', stream_handle, 'main')

    def test_element_types(self):
        from allograft._interop import type_string
        for given, text in (('float32', '<f4'), ('<f8', '<f8'), ('=i4', '<i4'), ('uint8', '|u1'), ('bool', '|b1'),
                            ('torch.int64', '<i8'), ('torch.bfloat16', '<V2'), (float, '<f4'), ('f2', '<f2')):
            self.assertEqual(type_string(given), text, given)
        self.refused(allograft.InvalidArgument, 'dtype', type_string, 'string')


class Memory(Case):
    WORDS = 1 << 20

    def setUp(self):
        super().setUp()
        self.memory = allograft.managed_alloc(4 * self.WORDS, 0, self.stream)

    def tearDown(self):
        allograft.managed_free(self.memory, 4 * self.WORDS, 0, self.stream)
        super().tearDown()

    def test_support(self):
        supported, reason = allograft.managed_support(0)
        self.assertEqual((supported, reason), (True, ''))
        self.assertFalse(allograft.managed_support(99))
        self.assertIn('device 99', allograft.managed_support(99).reason)

    def test_places(self):
        """That memory which can move goes there is tests/preload/paging's business."""
        tensor = Tensor(self.memory, self.WORDS)
        for place in ('device', 'host', 'auto'):
            self.refused(allograft.Unsupported, 'no memory that can move', allograft.memory_place, tensor, place)
        self.refused(allograft.InvalidArgument, 'one of auto, device, host', allograft.memory_place, tensor, 'card')
        self.assertEqual(allograft.memory_place(Tensor(0, 0), 'host'), 0)

    def test_contents_come_along(self):
        tensor = Tensor(self.memory, self.WORDS)
        device.fill(self.memory, 5, self.WORDS, self.stream)
        self.assertEqual(allograft.prefetch_tensor(tensor, 'cpu', self.stream), 4 * self.WORDS)
        device.synchronize(self.stream)
        host = (device.ctypes.c_uint32 * self.WORDS).from_address(self.memory)
        self.assertEqual((host[0], host[self.WORDS - 1]), (5, 5))
        host[0] = 6
        self.assertEqual(allograft.prefetch_tensor(tensor, 0, self.stream), 4 * self.WORDS)
        self.assertEqual(device.word(self.memory), 6)
        self.assertEqual(allograft.advise_preferred_location(tensor, 'cpu'), 4 * self.WORDS)
        self.assertEqual(allograft.advise_accessed_by(tensor, 0), 4 * self.WORDS)

    def test_it_counts(self):
        before = allograft.stats()['current_bytes']['managed']
        more = allograft.managed_alloc(3 << 20, 0, self.stream)
        self.assertEqual(allograft.stats()['current_bytes']['managed'] - before, 3 << 20)
        allograft.managed_free(more, 3 << 20, 0, self.stream)
        self.assertEqual(allograft.stats()['current_bytes']['managed'], before)

    def test_what_a_tensor_may_be(self):
        for thing, n in ((None, 0), (Tensor(self.memory, 0), 0), (Tensor(self.memory, 10, 2), 20),
                         (Tensor(self.memory, 10, 4, stride=3), 4 * 28), (Storage(self.memory), 4096),
                         (Array(self.memory, (3, 5)), 60), (Array(self.memory, (3, 5), strides=(40, 8)), 116),
                         (Array(self.memory, (3,), '<M8[ns]'), 24), (Array(self.memory, (3,), '<U4'), 48),
                         (Array(self.memory, (3,), '|V6'), 18),
                         (allograft.DeviceArray(self.memory, (2, 2), 'float16'), 8)):
            self.assertEqual(allograft.prefetch_tensor(thing, 0, self.stream), n)
        self.refused(allograft.InvalidArgument, "the host's", allograft.prefetch_tensor,
                     Tensor(self.memory, 4, is_cuda=False), 0, self.stream)
        self.refused(allograft.InvalidArgument, "the host's", allograft.prefetch_tensor, bytearray(8), 0, self.stream)
        self.refused(allograft.InvalidArgument, 'where its bytes are', allograft.prefetch_tensor, 3.5, 0, self.stream)
        self.refused(allograft.InvalidArgument, r"elements of type '\|O'", allograft.prefetch_tensor,
                     Array(self.memory, (3,), '|O'), 0, self.stream)

    def test_memory_that_is_not_managed(self):
        if os.environ.get('ALLOGRAFT_POLICY') == 'managed':
            self.skipTest('all memory is managed')
        other = device.alloc(4096)
        self.refused(allograft.InvalidArgument, 'no managed memory', allograft.prefetch_tensor,
                     Tensor(other, 1024), 0, self.stream)
        module = Module([Tensor(other, 1024), Tensor(self.memory, 100)])
        self.assertEqual(allograft.prefetch_module(module, 0, stream=self.stream), 400)
        device.free(other)

    def test_modules(self):
        at = self.memory
        tied = Tensor(at, 100)
        module = Module([tied, tied, Tensor(at + 4096, 50, 2), Tensor(at + 200, 100), None, Tensor(at, 0),
                         Tensor(at, 9, is_cuda=False)], [Tensor(at + 8192, 1), Tensor(at, 100)])
        for _ in range(2):
            self.assertEqual(allograft.prefetch_module(module, 'cpu', stream=self.stream), 600 + 100)
            self.assertEqual(allograft.prefetch_module(module, 0, include_buffers=True, stream=self.stream), 704)
        self.assertEqual(allograft.bytes_of_module(module, include_buffers=True), 704)
        self.assertEqual(allograft.advise_module(module, 'cpu', accessed_by=0), 700)
        self.assertEqual(allograft.advise_module(module, None, include_buffers=True, accessed_by='cpu'), 704)
        self.assertEqual(allograft.prefetch_module(None, 0, stream=self.stream), 0)
        self.assertEqual(allograft.prefetch_module(Module([]), 0, stream=self.stream), 0)

    def test_one_storage_is_one_range(self):
        from allograft._interop import Extent
        from allograft.memory import _ranges
        self.assertEqual(_ranges([Extent(100, 10, 100, True), Extent(110, 5, 100, True), Extent(115, 5, 115, True),
                                  Extent(120, 1, 0, True), Extent(121, 1, 0, True), Extent(90, 0, 0, True)]),
                         [(100, 15), (115, 5), (120, 1), (121, 1)])

    def test_not_in_a_capture(self):
        graph, tensor = allograft.Graph(), Tensor(self.memory, 100)
        with graph.capture(stream=self.stream):
            device.fill(self.memory, 8, 4, self.stream)
            self.refused(allograft.Capturing, 'captur', allograft.prefetch_tensor, tensor, 'cpu', self.stream)
            self.refused(allograft.Capturing, 'captur', allograft.advise_preferred_location, tensor, 'cpu')
            self.refused(allograft.Capturing, 'captur', allograft.prefetch_module, Module([tensor]), 0)
            self.refused(allograft.Capturing, 'captur', allograft.managed_alloc, 16, 0, self.stream)
        allograft.prefetch_tensor(tensor, 'cpu', self.stream)
        graph.replay(self.stream)
        self.assertEqual(device.word(self.memory), 8)


class Graphs(Case):
    def setUp(self):
        super().setUp()
        self.memory = device.alloc(4096)

    def tearDown(self):
        device.free(self.memory)
        super().tearDown()

    def fill(self, value, stream=None):
        device.fill(self.memory, value, 1024, stream or self.stream)

    def seen(self):
        return device.word(self.memory)

    def test_capture_and_replay(self):
        graph = allograft.Graph()
        self.assertTrue(graph.native)
        self.fill(1)
        graph.capture_begin(stream=self.stream)
        self.fill(2)
        graph.capture_end()
        self.assertEqual(self.seen(), 1)
        graph.replay()
        self.assertEqual(self.seen(), 2)
        self.fill(3)
        graph.replay(self.stream)
        self.assertEqual(self.seen(), 2)

    def test_a_node_that_is_added(self):
        """What is changed in the raw graph runs once the graph is instantiated again."""
        graph, beside = allograft.Graph(keep_graph=True), self.memory + 2048
        device.fill(self.memory, 1, 1024, self.stream)
        with graph.capture(stream=self.stream):
            device.fill(self.memory, 2, 4, self.stream)
        graph.instantiate()
        device.add_fill(graph.raw_cuda_graph(), beside, 9, 4)
        for instantiated, words in ((False, (2, 1)), (True, (2, 9)), (True, (2, 9))):
            if instantiated:
                graph.instantiate()
            graph.replay(self.stream)
            self.assertEqual((self.seen(), device.word(beside)), words)
            device.fill(self.memory, 1, 1024, self.stream)
        self.assertNotEqual(graph.raw_cuda_graph(), 0)

    def test_shared_stream(self):
        stream = allograft.shared_capture_stream()
        self.assertEqual(stream, allograft.shared_capture_stream(0))
        graph = allograft.Graph()
        with allograft.graph(graph) as same:
            self.assertIs(same, graph)
            self.assertTrue(device.is_capturing(stream))
            self.fill(4, stream)
        graph.replay(stream)
        self.assertEqual(self.seen(), 4)

    def test_pools(self):
        first, second, third = allograft.Graph(), allograft.Graph(), allograft.Graph()
        handle = allograft.graph_pool_handle()
        self.assertNotEqual(handle, allograft.graph_pool_handle())
        self.assertEqual(allograft.shared_graph_pool(), allograft.shared_graph_pool(0))
        for graph, pool in ((first, handle), (second, first), (third, None)):
            with graph.capture(pool=pool, stream=self.stream):
                self.fill(5)
        self.assertEqual((first.pool(), second.pool()), (handle, handle))
        self.assertNotEqual(third.pool(), handle)
        self.refused(allograft.InvalidArgument, "not one of the library's", allograft.Graph().capture_begin,
                     pool=(0, 1), stream=self.stream)

    def test_private_memory_stays(self):
        if not PRELOADED:
            self.skipTest("allocations are the driver's")
        graph = allograft.Graph()
        with graph.capture(stream=self.stream):
            inner = device.alloc(4096)
            device.fill(inner, 9, 1024, self.stream)
            device.copy(self.memory, inner, 4096, self.stream)
            device.free(inner)
        for _ in range(3):
            others = [device.alloc(4096) for _ in range(4)]
            self.assertNotIn(inner, others)
            self.fill(1)
            graph.replay(self.stream)
            self.assertEqual(self.seen(), 9)
            for other in others:
                device.free(other)

    def test_keep_graph(self):
        graph = allograft.Graph(keep_graph=True)
        self.refused(allograft.WrongState, 'no capture', graph.raw_cuda_graph)
        with graph.capture(stream=self.stream):
            self.fill(6)
        self.assertNotEqual(graph.raw_cuda_graph(), 0)
        graph.instantiate()
        graph.instantiate()
        graph.replay(self.stream)
        self.assertEqual(self.seen(), 6)
        path = os.path.join(FOLDER, 'kept.dot')
        graph.debug_dump(path)
        self.assertGreater(os.path.getsize(path), 0)

    def test_debug_mode(self):
        graph = allograft.Graph()
        graph.enable_debug_mode()
        with graph.capture(stream=self.stream):
            self.fill(6)
        path = os.path.join(FOLDER, 'debug.dot')
        graph.debug_dump(path)
        self.assertGreater(os.path.getsize(path), 0)
        self.refused(allograft.WrongState, 'not kept', graph.debug_dump, path)
        self.refused(allograft.WrongState, 'keep_graph', graph.raw_cuda_graph)
        self.refused(allograft.WrongState, 'keep_graph', graph.instantiate)

    def test_orders(self):
        graph = allograft.Graph()
        self.refused(allograft.WrongState, 'no capture', graph.replay)
        self.refused(allograft.WrongState, 'no capture', graph.capture_end)
        self.refused(allograft.WrongState, 'no capture', graph.pool)
        self.refused(allograft.InvalidArgument, 'capture_error_mode', graph.capture_begin, None, 'local')
        self.refused(allograft.InvalidArgument, 'default stream', graph.capture_begin, stream=0)
        self.refused(allograft.Unsupported, 'PyTorch', graph.register_generator_state, None)
        for mode in ('global', 'thread_local', 'relaxed'):
            with graph.capture(stream=self.stream, capture_error_mode=mode):
                self.fill(7)
            self.refused(allograft.WrongState, 'already', graph.capture_begin, stream=self.stream)
            graph.reset()

    def test_a_body_that_fails(self):
        graph = allograft.Graph()
        with self.assertRaisesRegex(KeyError, 'mine'):
            with graph.capture(stream=self.stream):
                self.fill(8)
                raise KeyError('mine')
        self.assertFalse(device.is_capturing(self.stream))
        self.refused(allograft.WrongState, 'no capture', graph.replay)
        with graph.capture(stream=self.stream):
            self.fill(9)
        graph.replay(self.stream)
        self.assertEqual(self.seen(), 9)

    def test_a_capture_that_is_invalid(self):
        graph = allograft.Graph()
        with self.assertRaises(allograft.DriverError):
            with graph.capture(stream=self.stream):
                self.fill(8)
                device.cu.cuStreamSynchronize(device.c_void_p(self.stream))
        with graph.capture(stream=self.stream):
            self.fill(10)
        graph.replay(self.stream)
        self.assertEqual(self.seen(), 10)


class Stages(Case):
    def test_actions(self):
        memory = device.alloc(4096)
        stage = allograft.Stage('actions', warmup_steps=2)
        self.assertEqual((stage.current_iteration, stage.next_iteration), (-1, 0))
        actions = []
        for i in range(6):
            stage.load(0, 1, array.array('I', [i] * 4), self.stream) if i else stage.input(0, 1, 16)
            with stage.iteration(self.stream) as action:
                actions.append(action)
                self.assertEqual((stage.current_iteration, stage.next_iteration), (i, i + 1))
                if action != Action.SKIP:
                    device.copy(memory, stage.input(0, 1, 16), 16, self.stream)
            if i:
                self.assertEqual(device.word(memory), i)
        self.assertEqual(actions, [Action.RUN, Action.RUN, Action.RECORD] + [Action.SKIP] * 3)
        stage.reset()
        self.assertEqual(stage.begin(self.stream), Action.RUN)
        self.refused(allograft.WrongState, 'open already', stage.begin, self.stream)
        stage.end()
        self.refused(allograft.InvalidArgument, 'warmup_steps -1', allograft.Stage, 'below', warmup_steps=-1)
        stage.close()
        device.free(memory)

    def test_of_one_name(self):
        """They are one stage, and close as one."""
        stage, same, other = allograft.Stage('one'), allograft.Stage('one'), allograft.Stage('other')
        self.assertEqual(stage.input(0, 0, 64), same.input(0, 0, 64))
        with other.iteration(self.stream):
            stage.close()
        self.refused(allograft.InvalidArgument, 'no stage', same.begin, self.stream)
        same.reset()
        self.assertEqual(other.next_iteration, 1)
        same.close()
        other.close()

    def test_a_body_that_fails(self):
        stage = allograft.Stage('failing', warmup_steps=0)
        with self.assertRaisesRegex(KeyError, 'mine'):
            with stage.iteration(self.stream) as action:
                self.assertEqual(action, Action.RECORD)
                raise KeyError('mine')
        self.assertFalse(device.is_capturing(self.stream))
        stage.close()

    def test_close_in_a_capture(self):
        """It is refused; the stage is still there, to be closed later."""
        stage, graph = allograft.Stage('captured', warmup_steps=0), allograft.Graph()
        address = stage.input(0, 0, 64)
        with graph.capture(stream=self.stream):
            self.refused(allograft.Capturing, 'capture', stage.close)
        self.assertEqual(stage.input(0, 0, 64), address)
        stage.close()
        stage.close()

    def test_transparent(self):
        stage = allograft.Stage('transparent', 0, transparent=True)
        for _ in range(4):
            with stage.iteration() as action:
                self.assertEqual(action, Action.RUN)
        stage.close()


@dataclasses.dataclass
class Batch:
    words: array.array
    scale: float
    parts: list


def batch(value, scale=0.5):
    return Batch(array.array('I', [value] * 8), scale, [{'mask': bytearray([value] * 4), 'name': 'mask'}, (None, 3)])


class Loader(Case):
    def test_nested(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        first = None
        for value in (1, 2, 3):
            static = loader(batch(value))
            self.assertIsInstance(static, Batch)
            words, mask = static.words, static.parts[0]['mask']
            self.assertEqual((words.shape, words.typestr, words.nbytes), ((8,), '<u4', 32))
            self.assertEqual(device.read(words.data_ptr(), 32), bytes(array.array('I', [value] * 8)))
            self.assertEqual(device.read(mask.data_ptr(), 4), bytes([value] * 4))
            self.assertEqual((static.scale, static.parts[0]['name'], static.parts[1]), (0.5, 'mask', (None, 3)))
            first = first or static
            self.assertIs(first.words, words)
        self.assertIsNot(loader(batch(4), 'validation').words, first.words)
        self.assertIsNot(loader(batch(4), microbatch=1).words, first.words)
        self.assertEqual(device.read(first.words.data_ptr(), 4), b'\3\0\0\0')

    def test_stages_of_any_name(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        statics = [loader([bytearray([i] * 4)], stage) for i, stage in
                   enumerate(('\xe9' * 40, 70 * 'e' + ' of all', 70 * 'e' + ' of a part'))]
        for i, static in enumerate(statics):
            self.assertEqual(device.read(static[0].data_ptr(), 4), bytes([i] * 4))
        loader.reset()

    def test_changes_are_refused(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        loader(batch(1))
        longer = batch(1)
        longer.words = array.array('I', [1] * 9)
        other = batch(1)
        other.words = array.array('f', [1] * 8)
        fewer = batch(1)
        del fewer.parts[0]['name']
        swapped = batch(1)
        swapped.words = 8
        for wrong, text in ((batch(1, 0.25), r'training, micro-batch 0: input\.scale changed from 0\.5 to 0\.25'),
                            (longer, r'input\.words changed from u4 \(8,\) to u4 \(9,\)'), (other, 'to f4'),
                            (fewer, 'other parts'), (swapped, 'was once an array')):
            self.refused(allograft.InvalidArgument, text, loader, wrong)
        loader.reset('training')
        self.assertEqual(loader(longer).words.shape, (9,))
        loader.reset()

    def test_what_holds_no_array_is_itself(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        model = [object(), Batch(3, 4.0, [])]
        self.assertIs(loader({'model': model, 'x': bytearray(4)})['model'], model)
        point = collections.namedtuple('point', 'x y')
        static = loader(point(bytearray(4), 2), 'points')
        self.assertEqual((type(static), static.y), (point, 2))

    def test_only_what_is_contiguous(self):
        loader, memory = allograft.StaticBufferLoader(stream=self.stream), device.alloc(64)
        for strides in ((4, 16), (32, 4), (-16, 4)):
            self.refused(allograft.InvalidArgument, 'not contiguous', loader, [Array(memory, (2, 4), '<i4', strides)])
        self.refused(allograft.InvalidArgument, 'where its bytes', loader, [memoryview(bytearray(8))[::2]])
        self.assertEqual(loader([Array(memory, (2, 4), '<i4', (16, 4))])[0].shape, (2, 4))
        device.synchronize()
        device.free(memory)

    def test_a_nan_is_the_same(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        for nan in (float('nan'), float('-nan'), float('inf') - float('inf')):
            self.assertNotEqual(loader({'x': bytearray(4), 'scale': nan})['scale'], nan)
        for other, text in ((1.0, "scale'. changed from nan to 1"), ('nan', "changed from nan to 'nan'")):
            self.refused(allograft.InvalidArgument, text, loader, {'x': bytearray(4), 'scale': other})

    def test_fields_without_a_value(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        for kind in (Late, FrozenLate):
            for value in (1, 2):
                static = loader(kind(bytearray([value] * 4)), kind.__name__)
                self.assertIsInstance(static, kind)
                self.assertEqual(device.read(static.words.data_ptr(), 4), bytes([value] * 4))
                self.assertFalse(hasattr(static, 'later'))
            whole = kind(bytearray(4))
            object.__setattr__(whole, 'later', bytearray(8))
            self.refused(allograft.InvalidArgument, 'other parts', loader, whole, kind.__name__)
            self.assertEqual(loader(whole, 'whole ' + kind.__name__).later.nbytes, 8)

    def test_from_the_device(self):
        loader = allograft.StaticBufferLoader(stream=self.stream)
        memory = device.alloc(64)
        for value in (1, 2):
            device.fill(memory, value, 16, self.stream)
            static = loader([Array(memory, (4, 4), '<i4')])
            device.fill(memory, 99, 16, self.stream) # after the copy, in the order of the stream
            self.assertEqual(device.word(static[0].data_ptr()), value)
            self.assertEqual(static[0].shape, (4, 4))
        device.synchronize()
        device.free(memory)


@dataclasses.dataclass
class Late:
    words: object
    later: object = dataclasses.field(init=False)
    note: str = 'late'


@dataclasses.dataclass(frozen=True)
class FrozenLate:
    __slots__ = ('words', 'later')
    words: object
    later: object

    def __init__(self, words):
        object.__setattr__(self, 'words', words)

    def __getstate__(self): # as slots=True makes it
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


class Iterations(Case):
    def setUp(self):
        super().setUp()
        self.out = device.alloc(64)
        self.calls = 0

    def tearDown(self):
        device.free(self.out)
        super().tearDown()

    def step(self, words, *, at=0):
        self.calls += 1
        device.copy(self.out + at, words.data_ptr(), 32, self.graph.stream)
        return {'out': self.out, 'calls': [self.calls]}

    def run_step(self, value, **more):
        result = self.graph(array.array('I', [value] * 8), **more)
        self.assertEqual(device.word(result['out'] + more.get('at', 0)), value)
        return result

    def test_stages(self):
        for single_pool in (False, True):
            self.calls = 0
            self.graph = allograft.FullIterationGraph(self.step, warmup_steps=2, single_pool=single_pool)
            for i in range(8):
                self.assertEqual((self.graph.current_iteration(), self.graph.next_iteration()), (i - 1, i))
                result = self.run_step(10 + i)
                self.assertEqual(self.graph.is_recorded(), i >= 2)
                if i >= 3:
                    self.assertIs(result, self.graph.result())
                self.run_step(50 + i, stage='validation', at=32)
            self.assertEqual(self.calls, 6)
            self.assertEqual(self.graph.result()['calls'], [5])
            self.graph.reset('training')
            self.assertEqual((self.graph.next_iteration(), self.graph.next_iteration('validation')), (0, 8))
            for i in range(4):
                self.run_step(30 + i)
                self.run_step(70 + i, stage='validation', at=32)
            self.assertEqual(self.calls, 9)
            self.graph.reset(inputs=True)
            self.assertIsNone(self.graph.result())
            self.run_step(5)

    def test_arguments_that_change(self):
        self.graph = allograft.FullIterationGraph(self.step, 0)
        self.run_step(1, at=0)
        self.refused(allograft.InvalidArgument, r"training: input\[1\]\['at'\] changed", self.run_step, 2, at=32)
        self.refused(allograft.InvalidArgument, 'other parts', self.run_step, 2)
        self.run_step(3, at=0)
        self.graph.reset()
        self.run_step(4, at=32)

    def test_nothing_is_frozen_before(self):
        """Shapes, types, keys, values and functions may change until there is a recording, and when there is none."""
        for fails in (False, True):
            seen, addresses = [], set()

            def step(data, scale, at=0, function=None):
                words = data['words']
                seen.append((words.nbytes, scale, at, function, sorted(data)))
                addresses.add(words.data_ptr())
                device.copy(self.out + at, words.data_ptr(), min(words.nbytes, 4), self.graph.stream)
                if fails and device.is_capturing(self.graph.stream):
                    raise KeyError('not in a capture')

            self.graph = allograft.FullIterationGraph(step, warmup_steps=0 if fails else 40)
            if fails:
                self.refused(KeyError, 'not in', self.graph, {'words': bytearray(4)}, 0)
                seen.clear()
            for i in range(40):
                data = {'words': array.array('HI'[i % 2], [i] * (4 + i)), **({'extra': str(i)} if i % 3 else {})}
                self.graph(data, i / 2, at=i % 8 * 4, **({'function': lambda: i} if i % 5 else {}))
                self.assertEqual(device.read(self.out + i % 8 * 4, 2), bytes([i, 0]))
                self.assertEqual(seen[i][0], data['words'].itemsize * (4 + i))
            self.assertEqual([row[1:3] for row in seen], [(i / 2, i % 8 * 4) for i in range(40)])
            # what grows does not leave a buffer behind for each size
            self.assertLess(len(addresses), 8)
            self.assertEqual((self.graph.is_recorded(), self.graph.next_iteration()), (False, 40))
            if not fails:
                self.graph({'words': bytearray(8)}, 1)
                self.refused(allograft.InvalidArgument, 'changed from', self.graph, {'words': bytearray(9)}, 1)
                self.refused(allograft.InvalidArgument, 'changed from 1 to 2', self.graph, {'words': bytearray(8)}, 2)

    def test_buffers_of_a_recording_stay(self):
        """Also when another graph has the same loader and is not recorded yet."""
        loader = allograft.StaticBufferLoader(stream=allograft.shared_capture_stream())
        self.graph = allograft.FullIterationGraph(self.step, 0, loader=loader)
        other = allograft.FullIterationGraph(lambda words: None, 9, loader=loader, stream=self.graph.stream)
        other(array.array('I', [1] * 9))
        self.run_step(2)
        self.refused(allograft.InvalidArgument, 'changed from', other, array.array('I', [3] * 9))
        self.run_step(4)
        self.graph.reset()
        other(array.array('I', [3] * 9))

    def test_a_refused_load_consumes_nothing(self):
        def forward_backward(data_iterator, num_microbatches):
            for n, iterator in enumerate(data_iterator):
                for i in range(num_microbatches if iterator else 0):
                    device.copy(self.out + 8 * n + 4 * i, next(iterator)['x'].data_ptr(), 4, self.graph.stream)

        def call(iterators, n=2):
            self.graph(data_iterator=iterators, num_microbatches=n)
            return list(device.read(self.out, 16)[::4])

        self.graph = allograft.FullIterationGraph(forward_backward, 0)
        first = iter([{'x': array.array('I', [value] * (1 + (value == 6)))} for value in range(1, 20)])
        second = iter([{'x': array.array('I', [value])} for value in range(101, 120)])
        self.assertEqual(call([first, second]), [1, 2, 101, 102])
        self.assertEqual(call([first, second]), [3, 4, 103, 104])
        for _ in range(3):
            self.refused(allograft.InvalidArgument, r"input\['x'\] changed", call, [first, second])
        self.refused(allograft.InvalidArgument, r"\['num_microbatches'\] changed", call, [first, second], 1)
        self.refused(allograft.InvalidArgument, 'are None are others', call, [None, second])
        self.graph.reset()
        self.assertEqual(call([first, second]), [5, 6, 105, 106])
        end = iter([{'x': array.array('I', [9])}])
        for _ in range(2):
            self.assertRaises(StopIteration, call, [iter([]), end])
        self.graph.reset()
        self.assertEqual(call([None, end], 1)[2:3], [9])

    def test_data_iterators(self):
        seen = []

        def forward_backward(data_iterator, model, num_microbatches, forward_only):
            for i in range(num_microbatches):
                item = next(data_iterator)
                seen.append(item['x'].data_ptr())
                device.copy(self.out + 4 * i, item['x'].data_ptr(), 4, self.graph.stream)
            return 'losses'

        self.graph = allograft.FullIterationGraph(forward_backward)
        data = iter({'x': array.array('I', [value])} for value in range(100))
        for i in range(4):
            self.assertEqual(self.graph(data_iterator=data, model=[self], num_microbatches=3, forward_only=False),
                             'losses')
            self.assertEqual(device.read(self.out, 12), bytes(array.array('I', range(3 * i, 3 * i + 3))))
        self.assertEqual(len(set(seen)), 3)
        self.graph(data_iterator=[data], model=[self], num_microbatches=0, forward_only=True)
        self.assertEqual(self.graph.next_iteration('validation'), 1)

    def test_what_cannot_be_recorded_runs(self):
        def step(words):
            self.calls += 1
            device.copy(self.out, words.data_ptr(), 32, self.graph.stream)
            if device.is_capturing(self.graph.stream):
                raise KeyError('not in a capture')
            return {'out': self.out}

        self.graph = allograft.FullIterationGraph(step)
        self.run_step(1)
        self.refused(KeyError, 'not in a capture', self.run_step, 2)
        self.assertEqual(self.graph.next_iteration(), 1)
        for value in (3, 4):
            self.run_step(value)
        self.assertEqual((self.calls, self.graph.is_recorded()), (4, False))

    def test_wrong_calls(self):
        self.refused(allograft.InvalidArgument, 'warmup_steps', allograft.FullIterationGraph, self.step, -1)
        self.graph = allograft.FullIterationGraph(lambda: self.graph())
        self.refused(allograft.WrongState, 'under way', self.graph)


LAYOUT = {'obs': ((3, 5), 'float32'), 'flag': ((), 'int8'), 'word': (4, 'uint32')}


class Rings(Case):
    def test_layout(self):
        with allograft.TransferRing(2, LAYOUT, timing=True) as ring:
            self.assertEqual([(f.offset, f.bytes) for f in ring.fields.values()], [(0, 60), (256, 1), (512, 16)])
            self.assertEqual(ring.slot_bytes, 528)
            self.assertEqual(ring.properties(0), ('auto', False, False, True))
            for slot in range(2):
                ring.register(slot)
                self.assertIn(ring.properties(slot).backend, ('pinned', 'bounce', 'pageable'))
            for i in range(10):
                slot = i % 2
                ring.host(slot)['word'][:] = bytes([i] * 16)
                ring.host(slot)['flag'][:] = bytes([i])
                ring.submit(slot)
                with ring.reading(slot, self.stream) as views:
                    self.assertEqual(views['obs'].shape, (3, 5))
                    self.assertEqual(views['flag'].__cuda_array_interface__['typestr'], '|i1')
                    out = device.alloc(16)
                    device.copy(out, views['word'].data_ptr(), 16, self.stream)
                ring.wait_host(slot)
                self.assertTrue(ring.query(slot))
                self.assertEqual(device.read(out, 16), bytes([i] * 16))
                self.assertEqual(device.read(ring.device_address(slot), ring.slot_bytes), bytes(ring.host_bytes(slot)))
                device.free(out)
            trace = ring.trace()
            self.assertEqual([(r.sequence, r.slot, r.bytes) for r in trace], [(i + 1, i % 2, 528) for i in range(10)])
            self.assertEqual(len(ring.trace(3)), 3)
            self.assertTrue(all(r.copy_ms is not None and r.copy_ms >= 0 for r in trace), trace)
        self.refused(allograft.WrongState, 'closed', ring.submit, 0)
        ring.close()

    def test_host_memory_of_all_kinds(self):
        shared = shared_memory.SharedMemory(create=True, size=4096)
        try:
            with allograft.TransferRing(4, slot_bytes=4096) as ring:
                for slot, memory in enumerate((shared, bytearray(4096), array.array('Q', [0] * 512), None)):
                    ring.register(slot, memory)
                    ring.host_bytes(slot)[:] = bytes([65 + slot]) * 4096
                    ring.submit(slot)
                    ring.wait_host(slot)
                    self.assertEqual(device.read(ring.device_address(slot), 4096), bytes([65 + slot]) * 4096)
                    self.assertEqual(ring.device_bytes(slot).shape, (4096,))
                self.assertEqual(bytes(shared.buf[:3]), b'AAA')
                with self.assertRaises(BufferError): # it is held while it is pinned
                    shared.close()
                ring.register(0, bytearray(5000))
                self.refused(allograft.InvalidArgument, '4096 are needed', ring.register, 0, bytearray(100))
                self.refused(allograft.InvalidArgument, 'cannot be written', ring.register, 0, bytes(4096))
                self.refused(allograft.InvalidArgument, 'slot 4', ring.submit, 4)
                self.refused(allograft.InvalidArgument, 'slot -1', ring.wait_host, -1)
        finally:
            shared.close()
            shared.unlink()

    def test_close_in_a_capture(self):
        """It is refused; the ring is still there, to be closed later."""
        ring, graph = allograft.TransferRing(1, slot_bytes=64), allograft.Graph()
        ring.register(0)
        with graph.capture(stream=self.stream):
            self.refused(allograft.Capturing, 'capture', ring.close)
        ring.submit(0)
        ring.close()
        self.refused(allograft.WrongState, 'closed', ring.submit, 0)

    def test_cleared_slots(self):
        with allograft.TransferRing(1, slot_bytes=64) as ring:
            self.refused(allograft.WrongState, 'no host slot', ring.submit, 0)
            self.refused(allograft.WrongState, 'no host slot', ring.host_bytes, 0)
            ring.register(0)
            self.assertFalse(ring.query(0))
            ring.submit(0)
            ring.clear(0)
            device.synchronize()
            self.assertFalse(ring.query(0))
            self.refused(allograft.WrongState, 'cleared', ring.wait_host, 0)
            ring.submit(0, 16)
            ring.wait_host(0)
            self.assertTrue(ring.query(0))

    def test_backends(self):
        for backend in ('pinned', 'bounce', 'pageable'):
            with allograft.TransferRing(1, slot_bytes=64, backend=backend) as ring:
                ring.register(0)
                self.assertEqual(ring.properties(0), (backend, backend != 'pageable', backend == 'pinned', False))
                for value in range(4):
                    ring.host_bytes(0)[:] = bytes([value]) * 64
                    ring.submit(0)
                    ring.wait_host(0)
                    self.assertEqual(device.read(ring.device_address(0), 64), bytes([value]) * 64)
        self.refused(allograft.InvalidArgument, 'backend', allograft.TransferRing, 1, slot_bytes=4, backend='best')
        self.refused(allograft.InvalidArgument, 'either', allograft.TransferRing, 1, LAYOUT, slot_bytes=4)
        self.refused(allograft.InvalidArgument, 'depth', allograft.TransferRing, 0, slot_bytes=4)
        behind = {'first': ((-100, 64), 'float32'), 'second': ((100, 100), 'float32')}
        self.refused(allograft.InvalidArgument, 'first: shape .-100, 64.: no extent', allograft.TransferRing, 1, behind)

    def test_copies(self):
        hosts, memory = [bytearray(4096 * (i + 1)) for i in range(5)], device.alloc(5 * 4096)
        with allograft.TransferRing(2) as ring:
            for host in hosts[:4]: # the last one stays pageable
                ring.pin(host)
            self.assertNotEqual(ring.stream, 0)
            self.assertFalse(ring.query(1))
            for i in range(20):
                host = hosts[i % 5]
                host[:] = bytes([i]) * len(host)
                ring.copy(i % 2, allograft.DeviceArray(memory, (len(host),), 'uint8'), host)
                ring.wait_host(i % 2)
                self.assertTrue(ring.query(i % 2))
                self.assertEqual(device.read(memory, len(host)), bytes(host))
                ring.reader(i % 2, self.stream)
            self.assertEqual([r.bytes for r in ring.trace(2)], [4096 * 4, 4096 * 5])
            ring.clear(0)
            device.fill(memory, 7, 1024, ring.stream)
            ring.copy(0)
            ring.wait_host(0)
            self.assertEqual(device.word(memory), 7)
            whole = allograft.DeviceArray(memory, (4096,), 'uint8')
            self.refused(allograft.InvalidArgument, '8192 bytes into 4096', ring.copy, 0, whole, hosts[1])
            self.refused(allograft.InvalidArgument, 'memory of the device', ring.copy, 0, hosts[0], hosts[0])
            self.refused(allograft.InvalidArgument, 'where its bytes are', ring.copy, 0, whole)
            self.refused(allograft.InvalidArgument, 'cannot be written', ring.pin, bytes(64))
            self.refused(allograft.InvalidArgument, 'of the host', ring.pin, whole)
            self.refused(allograft.WrongState, 'no slots', ring.register, 0, bytearray(64))
            with self.assertRaises(BufferError): # it is held while it is pinned
                hosts[0].append(1)
        hosts[0].append(1)
        for call in (lambda: ring.pin(hosts[1]), lambda: ring.copy(0), lambda: ring.stream):
            self.refused(allograft.WrongState, 'closed', call)
        self.refused(allograft.InvalidArgument, 'slot_bytes 0', allograft.TransferRing, 1, slot_bytes=0)
        device.free(memory)

    def test_producer_and_consumer(self):
        batches, free, full = 200, threading.Semaphore(2), threading.Semaphore(0)
        wrong = []
        with allograft.TransferRing(2, slot_bytes=256) as ring:
            for slot in range(2):
                ring.register(slot)

            def produce():
                device.open_device()
                for i in range(batches):
                    free.acquire()
                    if i >= 2:
                        ring.wait_host(i % 2)
                    ring.host_bytes(i % 2)[:] = bytes([i % 251]) * 256
                    ring.submit(i % 2)
                    full.release()

            producer = threading.Thread(target=produce)
            producer.start()
            out = device.alloc(256 * batches)
            for i in range(batches):
                full.acquire()
                with ring.reading(i % 2, self.stream) as view:
                    device.copy(out + 256 * i, view.data_ptr(), 256, self.stream)
                free.release()
            producer.join()
            for i in range(batches):
                if device.read(out + 256 * i, 256) != bytes([i % 251]) * 256:
                    wrong.append(i)
            device.free(out)
        self.assertEqual(wrong, [])


class Statistics(Case):
    def test_stats(self):
        before = allograft.stats()
        memory = device.alloc(1 << 20)
        after = allograft.stats()
        self.assertEqual(set(after['allocations']), {'native', 'pooled', 'managed', 'host', 'spilled'})
        self.assertEqual(sum(after['allocations'].values()) - sum(before['allocations'].values()), int(PRELOADED))
        self.assertEqual(sum(after['current_bytes'].values()) - sum(before['current_bytes'].values()),
                         (1 << 20) * PRELOADED)
        self.assertIsInstance(after['api_captures'], int)
        device.free(memory)

    def test_marks(self):
        self.assertTrue(allograft.mark('epoch'))
        self.refused(allograft.InvalidArgument, 'name', allograft.mark, '')

    def test_dump(self):
        path = os.path.join(FOLDER, 'now.json')
        self.assertTrue(allograft.dump(path))
        with open(path, encoding='utf-8') as file:
            self.assertEqual(json.load(file)['process']['ended_by'], 'running')
        self.refused(allograft.InvalidArgument, 'no/such', allograft.dump, '/no/such/folder/x.json')


if __name__ == '__main__':
    done = unittest.main(exit=False, verbosity=0).result
    sys.stdout.flush()
    sys.exit(not done.wasSuccessful())
