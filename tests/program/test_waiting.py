"""What people see who wait for the program."""

from program.running import XD, succeed

FIT = ("fit", "stars.csv", "-c", "x,y", "-o", "again", *XD)


def test_a_fit_says_first_how_long_it_takes(folder):
    output = succeed(*FIT)
    assert "Fitting 250 rows of 2 columns takes about 1 s" in output
    assert output.index("takes about") < output.index("Gaussian mixture with 2 components")


def test_quiet_says_nothing_of_it(folder):
    assert "takes about" not in succeed(*FIT, "-q")


def test_what_is_quicker_is_said_in_the_words_of_the_program():
    from deconflow import Deconvolver
    from deconflow.program.messages import as_options

    said = as_options(Deconvolver()._quicker)
    assert said == "--quick or --method xd is quicker"
    assert as_options(Deconvolver(quick=True)._quicker) == "--method xd is quicker"
