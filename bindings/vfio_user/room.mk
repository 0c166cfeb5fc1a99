# vfio-user, server and client: no library
libs/bindings/vfio_user := -pthread
private/bindings/vfio_user := dxpu_vfio_user_copy.h dxpu_vfio_user_descriptors.h dxpu_vfio_user_stream.h
