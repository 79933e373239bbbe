"""Calls and usual results of described tasks, read and written without the codec: a rank handles one of each per task.

Both are msgpack, as the codec reads and writes it. Functions return None for forms that they do not know.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from rp_api.wire import codec

cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define to_big_64(number) __builtin_bswap64(number)
    #else
    #define to_big_64(number) (number)
    #endif
    """
    uint64_t to_big_64(uint64_t number) noexcept

cdef extern from "Python.h":
    str PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef bytes _NOTHING = codec.NOTHING
cdef bytes _RETURNED_NOTHING = b'S' + codec.pack({'exit_code': 0})
cdef bytes _RETURNED = b'S' + codec.pack({'exit_code': 0, 'return_value': None}).removesuffix(codec.pack(None))

cdef enum:
    START = 1 + 16        # offset of the task in a call
    THREE_ITEMS = 0x93
    SHORT_TEXT = 0xa0     # and its size, below 32
    TEXT = 0xd9
    BYTES = 0xc4
    FALSE = 0xc2
    TRUE = 0xc3
    FLOAT = 0xcb
    UNSIGNED = 0xcc       # of one byte; of 2, 4, 8 bytes with the next numbers
    SIGNED = 0xd0


def read_alike(bytes call not None):
    """Return uid, sandbox and packed other attributes of the task in a call of kind T."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(call)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(call), at = START + 1, size
    if end <= at or data[START] != THREE_ITEMS:
        return None
    uid = _text(data, &at, end)
    sandbox = None if uid is None else _text(data, &at, end)
    if sandbox is None or end - at < 2 or data[at] != BYTES:
        return None
    size = data[at + 1]
    at += 2
    if at + size != end:
        return None
    if size == 1 and data[at] == <uint8_t>PyBytes_AS_STRING(_NOTHING)[0]:
        return uid, sandbox, _NOTHING
    return uid, sandbox, PyBytes_FromStringAndSize(<const char *>data + at, size)


cdef object _text(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end):
    """Return the text at a position that is before the end, and move behind it."""
    cdef Py_ssize_t start = at[0] + 1, size
    if at[0] >= end:
        return None
    if data[at[0]] & 0xe0 == SHORT_TEXT:
        size = data[at[0]] & 0x1f
    elif data[at[0]] == TEXT and start < end:
        size = data[start]
        start += 1
    else:
        return None
    if start + size > end:
        return None
    at[0] = start + size
    return PyUnicode_DecodeUTF8(<const char *>data + start, size, b'surrogateescape')


def write_success(value):
    """Return the result of a task that has succeeded without output, whose value is None, a bool, an int or a float."""
    cdef char[9] packed
    cdef Py_ssize_t size = 1, start = PyBytes_GET_SIZE(_RETURNED)
    cdef int overflow = 0
    cdef long long number
    cdef double real
    cdef uint64_t bits
    kind = type(value)
    if kind is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return None
        size = _put_number(packed, number)
    elif kind is float:
        real = value
        memcpy(&bits, &real, 8)
        size = _put(packed, FLOAT, bits, 8)
    elif kind is bool:
        packed[0] = <char>(TRUE if value else FALSE)
    else:
        return _RETURNED_NOTHING if value is None else None
    cdef bytes result = PyBytes_FromStringAndSize(NULL, start + size)
    memcpy(PyBytes_AS_STRING(result), PyBytes_AS_STRING(_RETURNED), start)
    memcpy(PyBytes_AS_STRING(result) + start, packed, size)
    return result


cdef Py_ssize_t _put_number(char *to, long long number) noexcept:
    """Write a number in as few bytes as possible; return how many."""
    cdef int power = 0
    if -32 <= number < 128:
        to[0] = <char>number
        return 1
    if number >= 0:
        while power < 3 and number >> (8 << power) != 0:
            power += 1
        return _put(to, UNSIGNED + power, <uint64_t>number, 1 << power)
    while power < 3 and number < -(<long long>1 << ((8 << power) - 1)):
        power += 1
    return _put(to, SIGNED + power, <uint64_t>number, 1 << power)


cdef Py_ssize_t _put(char *to, int kind, uint64_t bits, int size) noexcept:
    """Write the last `size` bytes of a number after the byte of its kind; return the number of bytes."""
    bits = to_big_64(bits)
    to[0] = <char>kind
    memcpy(to + 1, <char *>&bits + 8 - size, size)
    return 1 + size
