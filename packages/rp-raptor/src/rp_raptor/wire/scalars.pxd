cdef Py_ssize_t size_of(object value) noexcept
cdef char *write(char *at, object value) noexcept
cdef Py_ssize_t length(const char *data, Py_ssize_t size) noexcept
cdef object read(const char *data)
