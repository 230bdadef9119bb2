"""Extreme Deconvolution the slow way, straight from the paper: the twin of everything fast."""

import numpy as np
from scipy.special import logsumexp

from deconflow import GaussianMixture


def log_joint(mixture, w, R, S):
    """``(N, K)`` log of ``pi_k N(w; R m_k, R V_k R' + S)``, for lists of rows of any length."""
    answer = np.empty((len(w), mixture.n_components))
    for i in range(len(w)):
        for k in range(mixture.n_components):
            T = R[i] @ mixture.covariances[k] @ R[i].T + S[i]
            y = w[i] - R[i] @ mixture.means[k]
            quadratic = y @ np.linalg.solve(T, y)
            log_det = np.linalg.slogdet(T)[1]
            answer[i, k] = np.log(mixture.weights[k]) - 0.5 * (
                quadratic + log_det + len(y) * np.log(2 * np.pi)
            )
    return answer


def em_step(mixture, w, R, S, omega=None):
    """One EM step of Bovy et al. (2011), equations 14-17; returns mixture and log-likelihoods."""
    joint = log_joint(mixture, w, R, S)
    log_p = logsumexp(joint, axis=1)
    q = np.exp(joint - log_p[:, None])
    if omega is not None:
        q = q * omega[:, None]
    K, D = mixture.means.shape
    means, covariances = np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        m, V = mixture.means[k], mixture.covariances[k]
        b, B = np.empty((len(w), D)), np.empty((len(w), D, D))
        for i in range(len(w)):
            T = R[i] @ V @ R[i].T + S[i]
            gain = V @ R[i].T @ np.linalg.inv(T)
            b[i] = m + gain @ (w[i] - R[i] @ m)
            B[i] = V - gain @ R[i] @ V
        means[k] = q[:, k] @ b / q[:, k].sum()
        offset = b - means[k]
        scatter = np.einsum("n,nij->ij", q[:, k], B) + (q[:, k, None] * offset).T @ offset
        covariances[k] = scatter / q[:, k].sum()
    weights = q.sum(0) / q.sum()
    return GaussianMixture(weights, means, covariances), log_p
