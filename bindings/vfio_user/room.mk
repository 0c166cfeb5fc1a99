# the vfio-user server: no library
