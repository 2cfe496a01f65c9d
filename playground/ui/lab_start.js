// All parts are defined at this point.
buildExperimentForm();
buildResults();
buildReplications();
watch("value", mount);
mount();
pollLoop();
