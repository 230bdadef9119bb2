"""Classical deconvolution in few dimensions: kernels and wavelets in Fourier space."""
