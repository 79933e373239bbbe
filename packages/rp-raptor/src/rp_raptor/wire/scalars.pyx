"""Pickles of scalars, which most arguments and results are, written and read without the `pickle` module.

A scalar is None, a bool, an int of 32 bits, a float, and ASCII text or bytes of at most LONGEST bytes. Its form is the
opcode that pickle uses for it, so that `pickle` reads what is written here. The functions in C take and give the opcode
with its argument, without the start and the end of a pickle.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define is_ascii(text) PyUnicode_IS_COMPACT_ASCII(text)
    #define ascii_data(text) ((const char *)PyUnicode_1BYTE_DATA(text))
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define little_16(number) (number)
    #define little_32(number) (number)
    #define big_64(number) __builtin_bswap64(number)
    #else
    #define little_16(number) __builtin_bswap16(number)
    #define little_32(number) __builtin_bswap32(number)
    #define big_64(number) (number)
    #endif
    """
    bint is_ascii(object text) noexcept
    const char *ascii_data(object text) noexcept
    uint16_t little_16(uint16_t number) noexcept
    uint32_t little_32(uint32_t number) noexcept
    uint64_t big_64(uint64_t number) noexcept

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    str PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef enum:
    LONGEST = 16 * 1024
    NONE = 0x4e           # N
    TRUE = 0x88
    FALSE = 0x89
    INT_8 = 0x4b          # K
    INT_16 = 0x4d         # M
    INT_32 = 0x4a         # J
    FLOAT = 0x47          # G
    SHORT_TEXT = 0x8c
    TEXT = 0x58           # X
    SHORT_BYTES = 0x43    # C
    BYTES = 0x42          # B


cdef Py_ssize_t size_of(object value) noexcept:
    """Return how many bytes `write` writes; 0 for what is no scalar."""
    cdef Py_ssize_t size
    cdef int overflow = 0
    cdef long long number
    kind = type(value)
    if kind is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or not -(1 << 31) <= number < 1 << 31:
            return 0
        return 2 if 0 <= number < 1 << 8 else 3 if 0 <= number < 1 << 16 else 5
    if kind is str:
        size = PyUnicode_GET_LENGTH(value)
        return 0 if size > LONGEST or not is_ascii(value) else size + (2 if size < 1 << 8 else 5)
    if kind is bytes:
        size = PyBytes_GET_SIZE(value)
        return 0 if size > LONGEST else size + (2 if size < 1 << 8 else 5)
    if kind is float:
        return 9
    return value is None or kind is bool


cdef char *write(char *at, object value) noexcept:
    """Write a scalar, and return the end of what was written."""
    cdef uint64_t bits
    cdef double real
    kind = type(value)
    if kind is int:
        return _write_int(at, <int32_t><long long>value)
    if kind is str:
        return _write_string(at, SHORT_TEXT, TEXT, ascii_data(value), PyUnicode_GET_LENGTH(value))
    if kind is bytes:
        return _write_string(at, SHORT_BYTES, BYTES, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if kind is float:
        at[0] = FLOAT
        real = value
        memcpy(&bits, &real, 8)
        bits = big_64(bits)
        memcpy(at + 1, &bits, 8)
        return at + 9
    at[0] = <char>(NONE if value is None else TRUE if value else FALSE)
    return at + 1


cdef char *_write_int(char *at, int32_t number) noexcept:
    cdef uint16_t half
    cdef uint32_t whole
    if 0 <= number < 1 << 8:
        at[0] = INT_8
        at[1] = <char>number
        return at + 2
    if 0 <= number < 1 << 16:
        at[0] = INT_16
        half = little_16(<uint16_t>number)
        memcpy(at + 1, &half, 2)
        return at + 3
    at[0] = INT_32
    whole = little_32(<uint32_t>number)
    memcpy(at + 1, &whole, 4)
    return at + 5


cdef char *_write_string(char *at, int short_one, int long_one, const char *data, Py_ssize_t size) noexcept:
    cdef uint32_t length
    if size < 1 << 8:
        at[0] = <char>short_one
        at[1] = <char>size
        at += 2
    else:
        at[0] = <char>long_one
        length = little_32(<uint32_t>size)
        memcpy(at + 1, &length, 4)
        at += 5
    memcpy(at, data, size)
    return at + size


cdef Py_ssize_t length(const char *data, Py_ssize_t size) noexcept:
    """Return the bytes of the scalar at the start of the data; 0 if there is none, or not all of it."""
    if size < 1:
        return 0
    cdef uint8_t kind = <uint8_t>data[0]
    cdef Py_ssize_t found = 0
    if kind == NONE or kind == TRUE or kind == FALSE:
        found = 1
    elif kind == INT_8:
        found = 2
    elif kind == INT_16:
        found = 3
    elif kind == INT_32:
        found = 5
    elif kind == FLOAT:
        found = 9
    elif (kind == SHORT_TEXT or kind == SHORT_BYTES) and size >= 2:
        found = 2 + <uint8_t>data[1]
    elif (kind == TEXT or kind == BYTES) and size >= 5:
        found = 5 + <Py_ssize_t>_number_at(data + 1)
    return found if found <= size else 0


cdef object read(const char *data):
    """Return the scalar at the start of the data, all of which is there (see `length`)."""
    cdef uint8_t kind = <uint8_t>data[0]
    cdef uint16_t half
    cdef uint64_t bits
    cdef double real
    if kind == INT_8:
        return <uint8_t>data[1]
    if kind == INT_16:
        memcpy(&half, data + 1, 2)
        return little_16(half)
    if kind == INT_32:
        return <int32_t>_number_at(data + 1)
    if kind == SHORT_BYTES:
        return PyBytes_FromStringAndSize(data + 2, <uint8_t>data[1])
    if kind == BYTES:
        return PyBytes_FromStringAndSize(data + 5, _number_at(data + 1))
    if kind == SHORT_TEXT:
        return PyUnicode_DecodeUTF8(data + 2, <uint8_t>data[1], b'surrogatepass')
    if kind == TEXT:
        return PyUnicode_DecodeUTF8(data + 5, _number_at(data + 1), b'surrogatepass')
    if kind == FLOAT:
        memcpy(&bits, data + 1, 8)
        bits = big_64(bits)
        memcpy(&real, &bits, 8)
        return real
    return None if kind == NONE else kind == TRUE


cdef uint32_t _number_at(const char *data) noexcept:
    cdef uint32_t number
    memcpy(&number, data, 4)
    return little_32(number)
