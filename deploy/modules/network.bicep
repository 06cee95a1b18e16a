// A network in which the app finds the services by their private addresses. Flex Consumption delegates its subnet to
// Microsoft.App/environments, and takes no name with an underscore for it.
param name string
param location string
param tags object

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: ['10.42.0.0/16']
    }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: '10.42.1.0/24'
          delegations: [
            {
              name: 'flex-consumption'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'containers'
        properties: {
          addressPrefix: '10.42.4.0/23'
          delegations: [
            {
              name: 'container-apps'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.42.2.0/24'
          privateEndpointNetworkPolicies: 'Disabled'
        }
      }
    ]
  }
}

output networkId string = network.id
output appSubnetId string = '${network.id}/subnets/app'
output containerSubnetId string = '${network.id}/subnets/containers'
output endpointSubnetId string = '${network.id}/subnets/endpoints'
