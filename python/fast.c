/* SPDX-License-Identifier: Apache-2.0 */
/*
 * solccl._fast: the plain case of the collectives without ctypes. A call takes PyTorch tensors or
 * NumPy arrays as they are, finds addresses, count, type and stream, and calls the library.
 *
 * Each function returns the library's status, or None if the case is not plain: then nothing has
 * been done, no exception is set, and _communicator.py goes its own way, which knows every rule and
 * every error's text. So nothing here has to explain what is wrong with an argument.
 *
 * Stable ABI of Python 3.11 (the first with Py_buffer in it): one file serves that and all later
 * ones. The library's functions come as addresses from ctypes, which has opened it: never a second
 * copy.
 */
#include <Python.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <solccl/solccl.h>

/*
 * PyTorch's tensors are read by DLPack's C exchange table, the capsule `__dlpack_c_exchange_api__`
 * of their type. The structures are those of the specification of DLPack 1.3
 * (https://dmlc.github.io/dlpack/latest/c_api.html), as far as they are used; their layout holds
 * for all of major version 1.
 */
typedef struct {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_header {
    uint32_t major;
    uint32_t minor;
    struct dl_header *previous; /* the table of an older version, or NULL */
} dl_header_t;

typedef struct {
    dl_header_t header;
    void (*unused[3])(void); /* makes tensors, and shares them with an owner */
    int (*read)(void *object, dl_tensor_t *tensor);
    int (*stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange_t;

enum { DL_CPU = 1, DL_CUDA = 2 };

/* What Python has told: see `bind`, `tensors`, `arrays`. Kept for ever; guarded by the GIL. */
static struct {
    __typeof__(&sol_all_reduce) all_reduce;
    __typeof__(&sol_all_gather) all_gather;
    __typeof__(&sol_reduce_scatter) reduce_scatter;
    __typeof__(&sol_broadcast) broadcast;
    __typeof__(&sol_all_to_all) all_to_all;
    PyObject *ops; /* name: number */
    PyTypeObject *tensor_type;
    PyTypeObject *array_type;
    const dl_exchange_t *exchange;
} known;

/* An argument, read. */
typedef struct {
    void *data;
    size_t count;
    int dtype;
    int device; /* of a CUDA tensor; -1: host memory */
    bool rows_divide;
    bool held; /* view is to be given back */
    Py_buffer view;
} array_t;

/* A call: its arguments as given and as read. */
typedef struct {
    sol_comm_t comm;
    size_t size;
    bool on_cpu;
    int number; /* the operation's, or the root */
    array_t send;
    array_t recv;
    void *stream;
} call_t;

static int dtype_of_dl(const dl_tensor_t *t)
{
    if (t->lanes != 1) {
        return -1;
    }
    switch (t->code << 8 | t->bits) {
    case 0 << 8 | 8:
        return SOL_INT8;
    case 1 << 8 | 8:
        return SOL_UINT8;
    case 0 << 8 | 32:
        return SOL_INT32;
    case 1 << 8 | 32:
        return SOL_UINT32;
    case 0 << 8 | 64:
        return SOL_INT64;
    case 1 << 8 | 64:
        return SOL_UINT64;
    case 2 << 8 | 16:
        return SOL_FLOAT16;
    case 4 << 8 | 16:
        return SOL_BFLOAT16;
    case 2 << 8 | 32:
        return SOL_FLOAT32;
    case 2 << 8 | 64:
        return SOL_FLOAT64;
    case 6 << 8 | 8:
        return SOL_UINT8; /* bool */
    case 10 << 8 | 8:
        return SOL_FLOAT8_E4M3;
    case 12 << 8 | 8:
        return SOL_FLOAT8_E5M2;
    default:
        return -1;
    }
}

/* Of a buffer's format; more than one character (another byte order, a structure) is not plain. */
static int dtype_of_format(const char *format, Py_ssize_t itemsize)
{
    if (format == NULL || format[0] == 0 || format[1] != 0) {
        return -1;
    }
    switch (format[0]) {
    case 'b':
        return SOL_INT8;
    case 'B':
    case '?':
        return SOL_UINT8;
    case 'e':
        return SOL_FLOAT16;
    case 'f':
        return SOL_FLOAT32;
    case 'd':
        return SOL_FLOAT64;
    case 'i':
    case 'l':
    case 'q':
        return itemsize == 8 ? SOL_INT64 : SOL_INT32;
    case 'I':
    case 'L':
    case 'Q':
        return itemsize == 8 ? SOL_UINT64 : SOL_UINT32;
    default:
        return -1;
    }
}

/* Elements of a tensor that is contiguous, else -1. */
static int64_t elements(const dl_tensor_t *t)
{
    int64_t count = 1;
    bool gaps = false;
    for (int d = t->ndim - 1; d >= 0; d--) {
        gaps |= t->shape[d] != 1 && t->strides[d] != count;
        count *= t->shape[d];
    }
    return gaps && count != 0 ? -1 : count;
}

static bool read_tensor(PyObject *x, size_t size, array_t *a)
{
    dl_tensor_t t;
    if (known.exchange->read(x, &t) != 0) {
        PyErr_Clear(); /* (what is wrong, the other way says) */
        return false;
    }
    if (t.ndim > 0 && t.strides == NULL) {
        return false;
    }
    int64_t count = elements(&t);
    a->dtype = dtype_of_dl(&t);
    if (count < 0 || a->dtype < 0 || (t.device_type != DL_CPU && t.device_type != DL_CUDA)) {
        return false;
    }
    a->data = (char *)t.data + t.byte_offset;
    a->count = (size_t)count;
    a->device = t.device_type == DL_CUDA ? t.device_id : -1;
    a->rows_divide = t.ndim > 0 && (size_t)t.shape[0] % size == 0;
    return true;
}

static bool read_array(PyObject *x, bool write, size_t size, array_t *a)
{
    if (PyObject_GetBuffer(x, &a->view,
                           PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0)) != 0) {
        PyErr_Clear();
        return false;
    }
    a->held = true;
    a->dtype = dtype_of_format(a->view.format, a->view.itemsize);
    if (a->dtype < 0) {
        return false;
    }
    a->data = a->view.buf;
    a->count = (size_t)(a->view.len / a->view.itemsize);
    a->device = -1;
    a->rows_divide = a->view.ndim > 0 && (size_t)a->view.shape[0] % size == 0;
    return true;
}

/* Only the types themselves: a class derived from them may mean something else by its memory. */
static bool read_argument(PyObject *x, bool write, call_t *call, array_t *a)
{
    bool is_read = false;
    if (Py_TYPE(x) == known.tensor_type && known.exchange != NULL) {
        is_read = read_tensor(x, call->size, a);
    } else if (Py_TYPE(x) == known.array_type) {
        is_read = read_array(x, write, call->size, a);
    }
    return is_read && (a->device < 0) == call->on_cpu;
}

static void release(call_t *call)
{
    if (call->send.held) {
        PyBuffer_Release(&call->send.view);
    }
    if (call->recv.held) {
        PyBuffer_Release(&call->recv.view);
    }
}

/* An operation by number or, with `names`, by name; or a root: what fits an int. */
static bool read_number(PyObject *value, bool names, int *number)
{
    if (names && PyUnicode_CheckExact(value)) {
        value = PyDict_GetItemWithError(known.ops, value);
        if (value == NULL) {
            PyErr_Clear();
            return false;
        }
    }
    if (!PyLong_CheckExact(value)) {
        return false;
    }
    int overflow = 0;
    long long n = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0 || n < INT_MIN || n > INT_MAX) {
        return false;
    }
    *number = (int)n;
    return true;
}

/*
 * Arguments of all functions: handle, size, whether its ranks are CPU ranks, x, out, and the
 * operation or the root. `names`: the last one may be a name.
 */
static bool begin(call_t *call, PyObject *const *args, Py_ssize_t nargs, bool names)
{
    *call = (call_t){0};
    if (nargs != 6 || known.ops == NULL || !PyLong_CheckExact(args[0]) ||
        !read_number(args[5], names, &call->number)) {
        return false;
    }
    call->comm = PyLong_AsVoidPtr(args[0]);
    call->size = PyLong_AsSize_t(args[1]);
    if (PyErr_Occurred() != NULL || call->size == 0) {
        PyErr_Clear();
        return false;
    }
    call->on_cpu = args[2] == Py_True;
    PyObject *x = args[3];
    PyObject *out = args[4];
    bool good = read_argument(x, x == out, call, &call->send);
    if (good && x != out) {
        good = read_argument(out, true, call, &call->recv);
    } else if (good) {
        call->recv = call->send;
        call->recv.held = false;
    }
    good = good && call->send.dtype == call->recv.dtype && call->send.device == call->recv.device;
    if (good && !call->on_cpu &&
        known.exchange->stream(DL_CUDA, call->send.device, &call->stream) != 0) {
        PyErr_Clear();
        good = false;
    }
    if (!good) {
        release(call);
    }
    return good;
}

static PyObject *unusual(call_t *call)
{
    release(call);
    return Py_NewRef(Py_None);
}

/* Other Python threads run while the library works: it may wait for other ranks. */
#define RETURN_CALL(call, ...)                                                                     \
    do {                                                                                           \
        PyThreadState *thread_ = PyEval_SaveThread();                                              \
        sol_status_t status_ = __VA_ARGS__;                                                        \
        PyEval_RestoreThread(thread_);                                                             \
        release(call);                                                                             \
        return PyLong_FromLong(status_);                                                           \
    } while (0)

static PyObject *fast_all_reduce(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    call_t c;
    if (!begin(&c, args, nargs, true)) {
        return Py_NewRef(Py_None);
    }
    if (c.send.count != c.recv.count) {
        return unusual(&c);
    }
    RETURN_CALL(&c,
                known.all_reduce(c.send.data, c.recv.data, c.send.count, (sol_dtype_t)c.send.dtype,
                                 (sol_redop_t)c.number, c.comm, c.stream));
}

static PyObject *fast_all_gather(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    call_t c;
    if (!begin(&c, args, nargs, false)) {
        return Py_NewRef(Py_None);
    }
    if (c.send.count * c.size != c.recv.count) {
        return unusual(&c);
    }
    RETURN_CALL(&c, known.all_gather(c.send.data, c.recv.data, c.send.count,
                                     (sol_dtype_t)c.send.dtype, c.comm, c.stream));
}

static PyObject *fast_reduce_scatter(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    call_t c;
    if (!begin(&c, args, nargs, true)) {
        return Py_NewRef(Py_None);
    }
    if (c.recv.count * c.size != c.send.count) {
        return unusual(&c);
    }
    RETURN_CALL(&c, known.reduce_scatter(c.send.data, c.recv.data, c.recv.count,
                                         (sol_dtype_t)c.send.dtype, (sol_redop_t)c.number, c.comm,
                                         c.stream));
}

static PyObject *fast_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    call_t c;
    if (!begin(&c, args, nargs, false)) {
        return Py_NewRef(Py_None);
    }
    RETURN_CALL(&c, known.broadcast(c.send.data, c.recv.data, c.send.count,
                                    (sol_dtype_t)c.send.dtype, c.number, c.comm, c.stream));
}

static PyObject *fast_all_to_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)self;
    call_t c;
    if (!begin(&c, args, nargs, false)) {
        return Py_NewRef(Py_None);
    }
    if (!c.send.rows_divide || c.send.count != c.recv.count) {
        return unusual(&c);
    }
    RETURN_CALL(&c, known.all_to_all(c.send.data, c.recv.data, c.send.count / c.size,
                                     (sol_dtype_t)c.send.dtype, c.comm, c.stream));
}

/* bind(ops, all_reduce, all_gather, reduce_scatter, broadcast, all_to_all): addresses of the
 * library's functions. */
static PyObject *bind_library(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *ops = NULL;
    unsigned long long address[5];
    if (!PyArg_ParseTuple(args, "OKKKKK", &ops, &address[0], &address[1], &address[2], &address[3],
                          &address[4])) {
        return NULL;
    }
    if (!PyDict_CheckExact(ops)) {
        PyErr_SetString(PyExc_TypeError, "ops is not a dict");
        return NULL;
    }
    known.all_reduce = (__typeof__(known.all_reduce))(uintptr_t)address[0];
    known.all_gather = (__typeof__(known.all_gather))(uintptr_t)address[1];
    known.reduce_scatter = (__typeof__(known.reduce_scatter))(uintptr_t)address[2];
    known.broadcast = (__typeof__(known.broadcast))(uintptr_t)address[3];
    known.all_to_all = (__typeof__(known.all_to_all))(uintptr_t)address[4];
    Py_INCREF(ops);
    known.ops = ops;
    return Py_NewRef(Py_None);
}

/* tensors(type, capsule): PyTorch's type and its exchange table. False if that is of no version
 * known here. */
static PyObject *learn_tensors(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *type = NULL;
    PyObject *capsule = NULL;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &capsule)) {
        return NULL;
    }
    const dl_header_t *header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (header == NULL) {
        return NULL;
    }
    while (header != NULL && header->major != 1) {
        header = header->previous;
    }
    const dl_exchange_t *exchange = (const dl_exchange_t *)header;
    if (exchange == NULL || exchange->read == NULL || exchange->stream == NULL) {
        return Py_NewRef(Py_False);
    }
    if (known.tensor_type == NULL) {
        Py_INCREF(type);
        Py_INCREF(capsule);
        known.tensor_type = (PyTypeObject *)type;
        known.exchange = exchange;
    }
    return Py_NewRef(Py_True);
}

/* arrays(type): NumPy's. */
static PyObject *learn_arrays(PyObject *self, PyObject *type)
{
    (void)self;
    if (known.array_type == NULL && PyType_Check(type)) {
        Py_INCREF(type);
        known.array_type = (PyTypeObject *)type;
    }
    return Py_NewRef(Py_None);
}

#define FAST(name)                                                                                 \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))fast_##name, METH_FASTCALL,                            \
            "Status, or None: not plain."                                                          \
    }

static PyMethodDef methods[] = {
    FAST(all_reduce),
    FAST(all_gather),
    FAST(reduce_scatter),
    FAST(broadcast),
    FAST(all_to_all),
    {"bind", bind_library, METH_VARARGS, "The library's functions, by address."},
    {"tensors", learn_tensors, METH_VARARGS, "PyTorch's type of tensors, and its table."},
    {"arrays", learn_arrays, METH_O, "NumPy's type of arrays."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "solccl._fast", .m_doc = "Collectives' plain case.",
    .m_size = -1,          .m_methods = methods,
};

PyMODINIT_FUNC PyInit__fast(void);
PyMODINIT_FUNC PyInit__fast(void)
{
    return PyModule_Create(&module);
}
