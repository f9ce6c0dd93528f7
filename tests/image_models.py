"""Small networks with convolutions and pools, written by hand."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_gibbsnn as pmg

RNG = np.random.default_rng(11)
S = np.array([3.0, 2.4, 3.6, 2.7, 3.3, 2.1])  # standard deviations of noise, from the data upwards; all unequal
IMAGES = RNG.normal(size=(2, 1, 3, 4)) / 2


def relu(z):
    return pt.maximum(z, 0)


def conv_layer(number, a, noise, units=2, size=2, bias=True, **kwargs):
    """Z = conv(A, W) + b + noise."""
    channels = a.type.shape[1] if a.type.shape[1] is not None else 1
    mean = pmg.conv2d(a, pm.Normal(f"W{number}", 0, np.float64(0.3), shape=(units, channels, size, size)), **kwargs)
    if bias:
        mean = mean + pm.Normal(f"b{number}", 0, np.float64(0.5), shape=units)[:, None, None]
    return pm.Normal(f"Z{number + 1}", mean, noise)


def outputs(number, a, noise, k=2, y=None):
    """Dense outputs of flattened images, observed."""
    d = int(np.prod(a.type.shape[1:]))
    w = pm.Normal(f"W{number}", 0, np.float64(0.3), shape=(k, d))
    mean = a.reshape((-1, d)) @ w.T + pm.Normal(f"b{number}", 0, np.float64(0.6), shape=k)
    targets = pm.Data("y_data", RNG.normal(size=(len(IMAGES), k)) if y is None else y)
    return pm.Normal("y", mean, noise, observed=targets, shape=mean.shape)


def conv_dense(s=S):
    z = conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0], stride=(1, 2))
    outputs(2, pm.Normal("A2", relu(z), s[1]), s[2])


def conv_act_pool(s=S):
    """A pool that leaves out an edge, above an activation."""
    z = conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0], padding=1)
    a = pm.Normal("A2", relu(z), s[1])
    outputs(2, pm.Normal("Z3", pmg.average_pool2d(a, 2), s[2]), s[3])


def conv_act_tiles(s=S):
    """A pool that takes all pixels, above an activation."""
    a = pm.Normal("A2", relu(conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0])), s[1])
    outputs(2, pm.Normal("Z3", pmg.average_pool2d(a, (2, 1)), s[2]), s[3])


def conv_pool_act(s=S):
    """The order of the paper: a pool takes the output of the convolution as it is."""
    z = conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0])
    p = pm.Normal("Z3", pmg.average_pool2d(z, (1, 2)), s[1])
    outputs(2, pm.Normal("A3", relu(p), s[2]), s[3])


def conv_conv(s=S):
    a = pm.Normal("A2", relu(conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0])), s[1])
    z = conv_layer(2, a, s[2], units=3, stride=2, padding=1, bias=False)
    outputs(3, pm.Normal("A3", pt.abs(z), s[3]), s[4])


def conv_pool_conv(s=S):
    """A convolution takes the output of a pool as it is."""
    a = pm.Normal("A2", relu(conv_layer(1, pm.Data("X", IMAGES, shape=IMAGES.shape), s[0], padding=1)), s[1])
    p = pm.Normal("Z3", pmg.average_pool2d(a, 2), s[2])
    z = conv_layer(3, p, s[3], units=1)
    outputs(4, pm.Normal("A4", relu(z), s[4]), s[5])


def dense_conv(s=S):
    """The units of a dense layer are the pixels of images, which have no scale of their own in a convolution."""
    x = IMAGES.reshape(len(IMAGES), -1)[:, :3]
    z = pm.Normal("Z2", x @ pm.Normal("W1", 0, np.float64(0.3), shape=(3, 6)), s[0])
    a = pm.Normal("A2", relu(z), s[1])
    z = conv_layer(2, a.reshape((-1, 1, 2, 3)), s[2])
    outputs(3, pm.Normal("A3", relu(z), s[3]), s[4])


NETWORKS = {
    "conv dense": conv_dense,
    "conv act pool": conv_act_pool,
    "conv act tiles": conv_act_tiles,
    "conv pool act": conv_pool_act,
    "conv conv": conv_conv,
    "conv pool conv": conv_pool_conv,
    "dense conv": dense_conv,
}


def write(name, *args):
    """One of these models."""
    with pm.Model() as model:
        NETWORKS[name](*args)
    return model
