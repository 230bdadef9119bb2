"""Two posteriors with closed forms, to hold the package's objectives and chains against."""

import math

import torch

from deconflow.posteriors import PosteriorModel, Whitening


class NoiseKernel(PosteriorModel):
    """The law of ``w - n`` for complete rows: the posterior of a flat prior, a rough proposal."""

    def sample(self, data, k):
        n = data.noise.sample(k)
        return data.w - n, data.noise.log_prob(n)

    def log_prob(self, data, v):
        return data.log_likelihood(v)


class LinearGaussian(PosteriorModel):
    """The posterior of a standard normal prior, exact under Gaussian noise."""

    def sample(self, data, k):
        white = torch.randn(k, len(data), data.latent_dim, dtype=data.w.dtype)
        v, log_det = Whitening(data).call_and_ladj(white)
        return v, self._log_normal(white) - log_det

    def log_prob(self, data, v):
        white, log_det = Whitening(data).inv.call_and_ladj(v)
        return self._log_normal(white) + log_det

    @staticmethod
    def _log_normal(z):
        return -0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))
